import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.Destination;
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.InvalidSelectorException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageFormatException;
import jakarta.jms.MessageListener;
import jakarta.jms.MessageNotReadableException;
import jakarta.jms.MessageNotWriteableException;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import jakarta.jms.TransactionInProgressException;
import jakarta.jms.TransactionRolledBackException;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ActiveMQPrefetchPolicy;
import org.apache.activemq.ActiveMQSession;
import org.apache.activemq.ConfigurationException;
import org.apache.activemq.ConnectionFailedException;
import org.apache.activemq.RedeliveryPolicy;
import org.apache.activemq.broker.region.policy.RedeliveryPolicyMap;
import org.apache.activemq.command.ActiveMQBytesMessage;
import org.apache.activemq.command.ActiveMQDestination;
import org.apache.activemq.command.ActiveMQMessage;
import org.apache.activemq.command.ActiveMQQueue;
import org.apache.activemq.command.ActiveMQTempDestination;
import org.apache.activemq.command.ActiveMQTextMessage;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.command.MessageAck;
import org.apache.activemq.command.MessageDispatch;
import org.apache.activemq.command.RemoveInfo;
import org.apache.activemq.transport.FutureResponse;
import org.apache.activemq.transport.ResponseCallback;
import org.apache.activemq.transport.Transport;
import org.apache.activemq.transport.TransportFilter;

/**
 * Runs conformance scenarios (scenarios/FORMAT.md) with the ActiveMQ Java client, which is the judge of jmsx.
 *
 * <p>Reads scenario paths from standard input, one a line, and prints for each, as it ends, one JSON line
 * {@code {"path": …, "id": …, "outcomes": […]}}. Compares nothing: that is the business of the Python side.
 *
 * <p>Options: {@code --url tcp://…}, {@code --jobs n} (scenarios at once), {@code --limit s} (seconds a scenario may
 * take), {@code --stomp-like} (the Java client reduced to what a STOMP client can know and say; see
 * {@link StompLike}).
 */
public final class ScenarioRunner {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final String RUN_PROPERTY = "jmsx_run";

    private final String url;
    private final int jobs;
    private final long limitMillis;
    private final boolean stompLike;

    private ScenarioRunner(Map<String, String> options) {
        url = options.get("url");
        jobs = Integer.parseInt(options.getOrDefault("jobs", "8"));
        limitMillis = 1000L * Integer.parseInt(options.getOrDefault("limit", "60"));
        stompLike = options.containsKey("stomp-like");
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 0; i < arguments.length; i++) {
            String name = arguments[i].substring(2);
            options.put(name, name.equals("stomp-like") ? "" : arguments[++i]);
        }
        new ScenarioRunner(options).runAll();
        System.exit(0);  // a stuck scenario may have left threads behind
    }

    private void runAll() throws Exception {
        warmUp();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ExecutorService pool = Executors.newFixedThreadPool(jobs);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String path = line;
            pool.execute(() -> {
                String trace = runOne(path).toString();
                synchronized (out) {
                    out.println(trace);
                }
            });
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.DAYS);
    }

    /** One round trip, so that class loading does not fall into the first scenario's time measurements. */
    private void warmUp() throws JMSException {
        ActiveMQConnection connection = (ActiveMQConnection) factory().createConnection();
        try {
            connection.start();
            Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
            Queue queue = session.createTemporaryQueue();
            MessageConsumer consumer = session.createConsumer(queue);
            session.createProducer(queue).send(session.createTextMessage("warm up"));
            session.commit();
            consumer.receive(2000);
            session.rollback();
        } finally {
            connection.close();
        }
    }

    private ActiveMQConnectionFactory factory() {
        return stompLike ? new StompLike(url) : new ActiveMQConnectionFactory(url);
    }

    private ObjectNode runOne(String path) {
        ObjectNode trace = NODES.objectNode().put("path", path);
        try {
            JsonNode scenario = JSON.readTree(new File(path));
            Run run = new Run(scenario);
            trace.put("id", scenario.path("id").asText());
            trace.set("outcomes", run.outcomes(limitMillis));
            run.tidy();
        } catch (IOException | InterruptedException | RuntimeException error) {
            trace.put("failure", error.toString());
        }
        return trace;
    }

    // ------------------------------------------------------------------------------------------------ one scenario

    /** A step that refers to something that is not there, or that this runner does not know. */
    private static final class ScenarioError extends RuntimeException {
        private static final long serialVersionUID = 1L;

        ScenarioError(String text) {
            super(text);
        }
    }

    /** One run of one scenario: its names, objects and messages. */
    private final class Run {
        private final JsonNode scenario;
        private final String token = UUID.randomUUID().toString().substring(0, 8);
        private final Map<String, Destination> destinations = new ConcurrentHashMap<>();
        private final Map<String, String> logicalNames = new ConcurrentHashMap<>();
        private final Map<String, Object> objects = new ConcurrentHashMap<>();
        private final Map<String, Message> messages = new ConcurrentHashMap<>();
        private final List<ActiveMQConnection> connections = new CopyOnWriteArrayList<>();
        private final List<JsonNode> outcomes = new CopyOnWriteArrayList<>();

        Run(JsonNode scenario) {
            this.scenario = scenario;
            for (Map.Entry<String, JsonNode> entry : scenario.path("destinations").properties()) {
                String physical = "jmsx." + scenario.path("id").asText() + "." + token + "." + entry.getKey();
                boolean topic = entry.getValue().asText().equals("topic");
                register(entry.getKey(), topic ? new ActiveMQTopic(physical) : new ActiveMQQueue(physical));
            }
            register("DLQ", new ActiveMQQueue("ActiveMQ.DLQ"));
        }

        private void register(String name, Destination destination) {
            destinations.put(name, destination);
            logicalNames.put(((ActiveMQDestination) destination).getPhysicalName(), name);
        }

        /** Runs the steps on a thread of their own, so that one that never ends costs only its scenario. */
        ArrayNode outcomes(long limit) throws InterruptedException {
            Thread steps = new Thread(() -> {
                for (JsonNode step : scenario.path("steps")) {
                    outcomes.add(outcome(step));
                }
            }, "steps of " + scenario.path("id").asText());
            steps.setDaemon(true);
            steps.start();
            steps.join(limit);
            ArrayNode result = NODES.arrayNode();
            outcomes.forEach(result::add);
            for (int i = result.size(); i < scenario.path("steps").size(); i++) {
                result.add(error("Runtime", i == result.size() ? "the step did not end" : "not reached"));
            }
            return result;
        }

        void tidy() {
            Thread closing = new Thread(() -> connections.forEach(ScenarioRunner::closeQuietly), "tidy");
            closing.setDaemon(true);
            closing.start();
            try {
                closing.join(5000);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
            }
        }

        /** What a step did, as FORMAT.md section 2 has it; never throws. */
        private ObjectNode outcome(JsonNode step) {
            long begin = System.nanoTime();
            ObjectNode outcome;
            try {
                outcome = execute(step);
            } catch (Exception error) {
                outcome = error(kind(error), String.valueOf(error.getMessage()));
            }
            if (step.has("elapsed")) {
                outcome.put("elapsed", secondsSince(begin));
            }
            return outcome;
        }

        private ObjectNode execute(JsonNode step) throws Exception {
            switch (step.path("op").asText()) {
                case "connect": return connect(step);
                case "start": object(step, "target", Connection.class).start(); return ok();
                case "stop": object(step, "target", Connection.class).stop(); return ok();
                case "session": return session(step);
                case "consumer": return consumer(step);
                case "producer": return producer(step);
                case "temp_queue":
                    register(step.path("as").asText(), object(step, "in", Session.class).createTemporaryQueue());
                    return ok();
                case "temp_topic":
                    register(step.path("as").asText(), object(step, "in", Session.class).createTemporaryTopic());
                    return ok();
                case "composite": return composite(step);
                case "delete": ((ActiveMQTempDestination) destination(step.path("target"))).delete(); return ok();
                case "send": return send(step);
                case "receive": return receive(step, 2.0);
                case "receive_none": return receive(step, 0.4);
                case "receive_many": return receiveMany(step);
                case "listen": return listen(step);
                case "unlisten": object(step, "on", MessageConsumer.class).setMessageListener(null); return ok();
                case "await": return await(step);
                case "acknowledge": message(step.path("message").asText()).acknowledge(); return ok();
                case "recover": object(step, "in", Session.class).recover(); return ok();
                case "commit": object(step, "in", Session.class).commit(); return ok();
                case "rollback": object(step, "in", Session.class).rollback(); return ok();
                case "unsubscribe":
                    object(step, "in", Session.class).unsubscribe(step.path("durable").asText());
                    return ok();
                case "close": object(step, "target", AutoCloseable.class).close(); return ok();
                case "crash": return crash(step);
                case "wait": sleep(step.path("seconds").asDouble()); return ok();
                case "drain": return drain(step);
                case "browse": return browse(step);
                case "later": return later(step);
                default: throw new ScenarioError("unknown op " + step.path("op"));
            }
        }

        // ------------------------------------------------------------------------------------------ names

        private <T> T object(JsonNode step, String member, Class<T> type) {
            Object found = objects.get(step.path(member).asText());
            if (!type.isInstance(found)) {
                throw new ScenarioError(step.path(member) + " is no " + type.getSimpleName());
            }
            return type.cast(found);
        }

        private Message message(String reference) {
            Message found = messages.get(reference);
            if (found == null) {
                throw new ScenarioError("no message " + reference);
            }
            return found;
        }

        /** The destination a member names: a name, null, or {"reply_to_of": message}. */
        private Destination destination(JsonNode name) throws JMSException {
            if (name.isMissingNode() || name.isNull()) {
                return null;
            }
            if (name.isObject()) {
                return message(name.path("reply_to_of").asText()).getJMSReplyTo();
            }
            Destination found = destinations.get(name.asText());
            if (found == null) {
                throw new ScenarioError("no destination " + name);
            }
            return found;
        }

        private String logicalName(Destination destination) {
            if (destination == null) {
                return null;
            }
            String physical = ((ActiveMQDestination) destination).getPhysicalName();
            return logicalNames.getOrDefault(physical, physical);
        }

        /** The step's own selector, and on the DLQ, which all runs share, one that lets only our messages pass. */
        private String selector(JsonNode step) {
            String own = step.hasNonNull("selector") ? step.path("selector").asText() : null;
            if (!step.path("destination").asText().equals("DLQ")) {
                return own;
            }
            String ours = RUN_PROPERTY + " = '" + token + "'";
            return own == null ? ours : "(" + own + ") AND " + ours;
        }

        // ------------------------------------------------------------------------------------------ connections

        private ObjectNode connect(JsonNode step) throws JMSException {
            ObjectNode options = NODES.objectNode();
            options.setAll(asObject(scenario.path("options")));
            options.setAll(asObject(step.path("options")));
            ActiveMQConnection connection = open(options);
            objects.put(step.path("as").asText(), connection);
            if (step.hasNonNull("client_id")) {
                connection.setClientID(step.path("client_id").asText() + "-" + token);
            }
            if (step.path("start").asBoolean(true)) {
                connection.start();
            }
            return ok();
        }

        private ActiveMQConnection open(JsonNode options) throws JMSException {
            ActiveMQConnectionFactory factory = factory();
            if (options.has("prefetch")) {
                ActiveMQPrefetchPolicy prefetch = new ActiveMQPrefetchPolicy();
                prefetch.setAll(options.path("prefetch").asInt());
                factory.setPrefetchPolicy(prefetch);
            }
            factory.setOptimizeAcknowledge(options.path("optimize_acknowledge").asBoolean(false));
            factory.setOptimizeAcknowledgeTimeOut(millis(options.path("optimize_acknowledge_timeout").asDouble(0.3)));
            factory.setOptimizedAckScheduledAckInterval(
                millis(options.path("optimized_ack_scheduled_ack_interval").asDouble(0)));
            factory.setNonBlockingRedelivery(options.path("non_blocking_redelivery").asBoolean(false));
            factory.setTransactedIndividualAck(options.path("transacted_individual_ack").asBoolean(false));
            factory.setRedeliveryPolicy(redeliveryPolicy(options.path("redelivery_policy")));
            ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
            connections.add(connection);
            connection.setExceptionListener(error -> { });  // else the client prints the stack of every crash
            RedeliveryPolicyMap policies = connection.getRedeliveryPolicyMap();
            for (Map.Entry<String, JsonNode> entry : options.path("redelivery_policies").properties()) {
                ActiveMQDestination destination = (ActiveMQDestination) destination(NODES.textNode(entry.getKey()));
                policies.put(destination, redeliveryPolicy(entry.getValue()));
            }
            return connection;
        }

        private RedeliveryPolicy redeliveryPolicy(JsonNode given) {
            RedeliveryPolicy policy = new RedeliveryPolicy();
            policy.setMaximumRedeliveries(given.path("maximum_redeliveries").asInt(6));
            policy.setInitialRedeliveryDelay(millis(given.path("initial_redelivery_delay").asDouble(1.0)));
            policy.setRedeliveryDelay(millis(given.path("redelivery_delay").asDouble(1.0)));
            policy.setUseExponentialBackOff(given.path("use_exponential_back_off").asBoolean(false));
            policy.setBackOffMultiplier(given.path("back_off_multiplier").asDouble(5.0));
            double cap = given.path("maximum_redelivery_delay").asDouble(-1);
            policy.setMaximumRedeliveryDelay(cap < 0 ? -1 : millis(cap));
            policy.setUseCollisionAvoidance(given.path("use_collision_avoidance").asBoolean(false));
            policy.setCollisionAvoidancePercent((short) given.path("collision_avoidance_percent").asInt(15));
            policy.setPreDispatchCheck(given.path("pre_dispatch_check").asBoolean(true));
            return policy;
        }

        private ObjectNode crash(JsonNode step) throws Exception {
            ActiveMQConnection connection = object(step, "target", ActiveMQConnection.class);
            sleep(0.15);
            connection.getTransport().narrow(Socket.class).close();
            sleep(0.15);
            return ok();
        }

        // ------------------------------------------------------------------------------------------ sessions

        private ObjectNode session(JsonNode step) throws JMSException {
            Connection connection = object(step, "on", Connection.class);
            int mode;
            switch (step.path("mode").asText()) {
                case "AUTO": mode = Session.AUTO_ACKNOWLEDGE; break;
                case "CLIENT": mode = Session.CLIENT_ACKNOWLEDGE; break;
                case "DUPS_OK": mode = Session.DUPS_OK_ACKNOWLEDGE; break;
                case "INDIVIDUAL": mode = ActiveMQSession.INDIVIDUAL_ACKNOWLEDGE; break;
                case "TRANSACTED": mode = Session.SESSION_TRANSACTED; break;
                default: throw new ScenarioError("unknown mode " + step.path("mode"));
            }
            objects.put(step.path("as").asText(), connection.createSession(mode == Session.SESSION_TRANSACTED, mode));
            return ok();
        }

        private ObjectNode consumer(JsonNode step) throws JMSException {
            Session session = object(step, "in", Session.class);
            Destination destination = destination(step.path("destination"));
            if (step.has("prefetch") && destination != null) {
                destination = withPrefetch((ActiveMQDestination) destination, step.path("prefetch").asInt());
            }
            boolean noLocal = step.path("no_local").asBoolean(false);
            String selector = selector(step);
            MessageConsumer consumer = step.hasNonNull("durable")
                ? session.createDurableSubscriber((Topic) destination, step.path("durable").asText(), selector, noLocal)
                : session.createConsumer(destination, selector, noLocal);
            objects.put(step.path("as").asText(), consumer);
            return ok();
        }

        private Destination withPrefetch(ActiveMQDestination destination, int prefetch) {
            String name = destination.getQualifiedName() + "?consumer.prefetchSize=" + prefetch;
            return ActiveMQDestination.createDestination(name, destination.getDestinationType());
        }

        private ObjectNode producer(JsonNode step) throws JMSException {
            Session session = object(step, "in", Session.class);
            objects.put(step.path("as").asText(), session.createProducer(destination(step.path("to"))));
            return ok();
        }

        private ObjectNode composite(JsonNode step) throws JMSException {
            List<String> names = new ArrayList<>();
            for (JsonNode each : step.path("of")) {
                names.add(((ActiveMQDestination) destination(each)).getQualifiedName());
            }
            register(step.path("as").asText(), new ActiveMQQueue(String.join(",", names)));
            return ok();
        }

        // ------------------------------------------------------------------------------------------ sending

        private ObjectNode send(JsonNode step) throws JMSException {
            List<String> bodies = bodies(step.path("bodies"));
            int mode = step.path("persistent").asBoolean(true) ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
            long ttl = millis(step.path("ttl").asDouble(0));
            boolean own = !step.has("via");
            Session session = own ? object(step, "in", Session.class) : null;
            MessageProducer producer = own ? session.createProducer(null) : object(step, "via", MessageProducer.class);
            for (int i = 0; i < bodies.size(); i++) {
                Message message = newMessage(step, bodies.get(i));
                int priority = step.path("priorities").path(i).asInt(step.path("priority").asInt(4));
                if (own || step.has("to")) {
                    producer.send(destination(step.path("to")), message, mode, priority, ttl);
                } else {
                    producer.send(message, mode, priority, ttl);
                }
            }
            if (own) {
                producer.close();
            }
            return ok();
        }

        private List<String> bodies(JsonNode given) {
            List<String> bodies = new ArrayList<>();
            if (given.isArray()) {
                given.forEach(body -> bodies.add(body.asText()));
            } else {
                for (int n = given.path("from").asInt(); n <= given.path("to").asInt(); n++) {
                    bodies.add(given.path("prefix").asText() + n);
                }
            }
            return bodies;
        }

        /** A message made without a session: a producer given by name may belong to any of them. */
        private Message newMessage(JsonNode step, String body) throws JMSException {
            Message message;
            if (step.path("kind").asText("text").equals("bytes")) {
                ActiveMQBytesMessage bytes = new ActiveMQBytesMessage();
                bytes.writeBytes(body.getBytes(StandardCharsets.UTF_8));
                message = bytes;
            } else {
                ActiveMQTextMessage text = new ActiveMQTextMessage();
                text.setText(body);
                message = text;
            }
            message.setStringProperty(RUN_PROPERTY, token);
            for (Map.Entry<String, JsonNode> entry : step.path("properties").properties()) {
                message.setObjectProperty(entry.getKey(), JSON.convertValue(entry.getValue(), Object.class));
            }
            if (step.hasNonNull("correlation_id")) {
                message.setJMSCorrelationID(step.path("correlation_id").asText());
            }
            if (step.hasNonNull("type")) {
                message.setJMSType(step.path("type").asText());
            }
            if (step.hasNonNull("reply_to")) {
                message.setJMSReplyTo(destination(step.path("reply_to")));
            }
            if (step.hasNonNull("group_id")) {
                message.setStringProperty("JMSXGroupID", step.path("group_id").asText());
            }
            return message;
        }

        // ------------------------------------------------------------------------------------------ receiving

        private Message receiveFrom(MessageConsumer consumer, double timeout) throws JMSException {
            if (timeout < 0) {
                return consumer.receive();
            }
            return timeout == 0 ? consumer.receiveNoWait() : consumer.receive(Math.max(1, millis(timeout)));
        }

        private ObjectNode receive(JsonNode step, double defaultTimeout) throws JMSException {
            MessageConsumer consumer = object(step, "from", MessageConsumer.class);
            Message message = receiveFrom(consumer, step.path("timeout").asDouble(defaultTimeout));
            if (message == null) {
                return NODES.objectNode().put("none", true);
            }
            if (step.has("as")) {
                messages.put(step.path("as").asText(), message);
            }
            ObjectNode outcome = NODES.objectNode();
            outcome.set("message", describe(message, step.path("record")));
            return outcome;
        }

        private ObjectNode receiveMany(JsonNode step) throws Exception {
            MessageConsumer consumer = object(step, "from", MessageConsumer.class);
            double timeout = step.path("timeout").asDouble(2.0);
            ArrayNode received = NODES.arrayNode();
            for (int n = 1; n <= step.path("count").asInt(); n++) {
                Message message = receiveFrom(consumer, timeout);
                if (message == null) {
                    break;
                }
                if (step.has("as")) {
                    messages.put(step.path("as").asText() + "." + n, message);
                }
                received.add(describe(message, step.path("record")));
                sleep(step.path("pause").asDouble(0));
            }
            ObjectNode outcome = NODES.objectNode();
            outcome.set("messages", received);
            return outcome;
        }

        private ObjectNode drain(JsonNode step) throws JMSException {
            double timeout = step.path("timeout").asDouble(0.5);
            ArrayNode received = NODES.arrayNode();
            ActiveMQConnection connection = open(NODES.objectNode());
            try {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageConsumer consumer = session.createConsumer(destination(step.path("destination")), selector(step));
                for (Message m = receiveFrom(consumer, timeout); m != null; m = receiveFrom(consumer, timeout)) {
                    received.add(describe(m, step.path("record")));
                }
            } finally {
                closeQuietly(connection);
            }
            ObjectNode outcome = NODES.objectNode();
            outcome.set("messages", received);
            return outcome;
        }

        private ObjectNode browse(JsonNode step) throws JMSException {
            ArrayNode bodies = NODES.arrayNode();
            ActiveMQConnection connection = open(NODES.objectNode());
            try {
                connection.start();
                Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                QueueBrowser browser =
                    session.createBrowser((Queue) destination(step.path("destination")), selector(step));
                for (Enumeration<?> all = browser.getEnumeration(); all.hasMoreElements(); ) {
                    bodies.add(body((Message) all.nextElement()));
                }
            } finally {
                closeQuietly(connection);
            }
            ObjectNode outcome = NODES.objectNode();
            outcome.set("bodies", bodies);
            return outcome;
        }

        /** The M of FORMAT.md. */
        private ObjectNode describe(Message message, JsonNode record) throws JMSException {
            ObjectNode described = NODES.objectNode();
            described.set("body", body(message));
            described.put("redelivered", message.getJMSRedelivered());
            described.put("delivery_count", message.getIntProperty("JMSXDeliveryCount"));
            if (message instanceof BytesMessage) {
                described.put("kind", "bytes");
            }
            if (record.size() > 0) {
                ObjectNode extra = described.putObject("extra");
                for (JsonNode name : record) {
                    extra.set(name.asText(), recorded(message, name.asText()));
                }
            }
            return described;
        }

        private JsonNode body(Message message) throws JMSException {
            if (message instanceof TextMessage) {
                return NODES.textNode(((TextMessage) message).getText());
            }
            if (message instanceof BytesMessage) {
                byte[] content = new byte[(int) ((BytesMessage) message).getBodyLength()];
                ((BytesMessage) message).reset();
                ((BytesMessage) message).readBytes(content);
                return NODES.textNode(new String(content, StandardCharsets.UTF_8));
            }
            return NODES.nullNode();
        }

        private JsonNode recorded(Message message, String name) throws JMSException {
            if (name.startsWith("property:")) {
                return NODES.textNode(message.getStringProperty(name.substring("property:".length())));
            }
            if (name.startsWith("cause_contains:")) {
                String cause = message.getStringProperty(ActiveMQMessage.DLQ_DELIVERY_FAILURE_CAUSE_PROPERTY);
                String text = name.substring("cause_contains:".length());
                return NODES.booleanNode(cause != null && cause.contains(text));
            }
            switch (name) {
                case "priority": return NODES.numberNode(message.getJMSPriority());
                case "correlation_id": return NODES.textNode(message.getJMSCorrelationID());
                case "type": return NODES.textNode(message.getJMSType());
                case "persistent":
                    return NODES.booleanNode(message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
                case "expires": return NODES.booleanNode(message.getJMSExpiration() > 0);
                case "has_reply_to": return NODES.booleanNode(message.getJMSReplyTo() != null);
                case "destination": return NODES.textNode(logicalName(message.getJMSDestination()));
                case "original_destination":
                    return NODES.textNode(logicalName(((ActiveMQMessage) message).getOriginalDestination()));
                default: throw new ScenarioError("unknown record " + name);
            }
        }

        // ------------------------------------------------------------------------------------------ listening

        private ObjectNode listen(JsonNode step) throws JMSException {
            MessageConsumer consumer = object(step, "on", MessageConsumer.class);
            Listener listener = new Listener(this, step);
            consumer.setMessageListener(listener);
            objects.put(listener.name, listener);
            return ok();
        }

        private ObjectNode await(JsonNode step) throws InterruptedException {
            List<Listener> listeners = new ArrayList<>();
            JsonNode names = step.path("listener");
            for (JsonNode name : names.isArray() ? names : NODES.arrayNode().add(names)) {
                listeners.add(object(NODES.objectNode().set("listener", name), "listener", Listener.class));
            }
            long deadline = System.nanoTime() + 1_000_000L * millis(step.path("timeout").asDouble(4.0));
            while (System.nanoTime() < deadline
                && listeners.stream().mapToInt(Listener::waiting).sum() < step.path("count").asInt()) {
                Thread.sleep(5);
            }
            sleep(step.path("settle").asDouble(0.3));
            List<Delivery> deliveries = new ArrayList<>();
            listeners.forEach(listener -> deliveries.addAll(listener.take()));
            deliveries.sort(Comparator.comparingLong(delivery -> delivery.start));
            return report(deliveries, names.isArray(), step.has("gaps"));
        }

        private ObjectNode report(List<Delivery> deliveries, boolean withListener, boolean withGaps) {
            ObjectNode outcome = NODES.objectNode();
            ArrayNode reported = outcome.putArray("deliveries");
            ArrayNode gaps = NODES.arrayNode();
            Delivery previous = null;
            for (Delivery delivery : deliveries) {
                if (withListener) {
                    delivery.described.put("listener", delivery.listener);
                }
                reported.add(delivery.described);
                gaps.add(previous == null
                    ? NODES.nullNode()
                    : NODES.numberNode(rounded(delivery.start - previous.start)));
                previous = delivery;
            }
            if (withGaps) {
                outcome.set("gaps", gaps);
            }
            return outcome;
        }

        private ObjectNode later(JsonNode step) {
            Thread thread = new Thread(() -> {
                try {
                    sleep(step.path("after").asDouble());
                    outcome(step.path("step"));
                } catch (InterruptedException stop) {
                    Thread.currentThread().interrupt();
                }
            }, "later");
            thread.setDaemon(true);
            thread.start();
            return ok();
        }
    }

    /** One call of a listener, finished. */
    private static final class Delivery {
        final String listener;
        final long start;
        final ObjectNode described;

        Delivery(String listener, long start, ObjectNode described) {
            this.listener = listener;
            this.start = start;
            this.described = described;
        }
    }

    /** A scripted listener: the first rule that fits is applied. */
    private static final class Listener implements MessageListener {
        private final Run run;
        private final String name;
        private final JsonNode rules;
        private final JsonNode record;
        private final Map<String, Integer> seen = new LinkedHashMap<>();
        private final List<Delivery> finished = new ArrayList<>();
        private int calls;

        Listener(Run run, JsonNode step) {
            this.run = run;
            name = step.path("as").asText();
            rules = step.path("handler");
            record = step.path("record");
        }

        synchronized int waiting() {
            return finished.size();
        }

        synchronized List<Delivery> take() {
            List<Delivery> taken = new ArrayList<>(finished);
            finished.clear();
            return taken;
        }

        private synchronized void finish(Delivery delivery) {
            finished.add(delivery);
        }

        @Override
        public void onMessage(Message message) {
            long start = System.nanoTime();
            calls++;
            run.messages.put(name + "." + calls, message);
            ObjectNode described;
            try {
                described = run.describe(message, record);
            } catch (JMSException error) {
                throw new ScenarioError("unreadable message: " + error);
            }
            String body = described.path("body").asText();
            seen.merge(body, 1, Integer::sum);
            ArrayNode errors = NODES.arrayNode();
            try {
                act(message, actions(body), errors);
            } finally {
                if (!errors.isEmpty()) {
                    described.set("action_errors", errors);
                }
                finish(new Delivery(name, start, described));
            }
        }

        private JsonNode actions(String body) {
            for (JsonNode rule : rules) {
                boolean fits = (!rule.has("body") || rule.path("body").asText().equals(body))
                    && within(seen.get(body), rule.path("deliveries"))
                    && within(calls, rule.path("calls"))
                    && (!rule.has("every") || calls % rule.path("every").asInt() == 0);
                if (fits) {
                    return rule.path("do");
                }
            }
            return NODES.arrayNode();
        }

        private static boolean within(int number, JsonNode bounds) {
            if (bounds.isMissingNode()) {
                return true;
            }
            if (!bounds.isArray()) {
                return number == bounds.asInt();
            }
            return number >= bounds.path(0).asInt() && (bounds.path(1).isNull() || number <= bounds.path(1).asInt());
        }

        private void act(Message message, JsonNode actions, ArrayNode errors) {
            for (JsonNode action : actions) {
                if (action.asText().equals("fail")) {
                    throw new RuntimeException("scripted failure");
                }
                try {
                    if (action.asText().equals("acknowledge")) {
                        message.acknowledge();
                    } else if (action.has("sleep")) {
                        sleep(action.path("sleep").asDouble());
                    } else {
                        run.execute(action);
                    }
                } catch (Exception error) {
                    errors.add(kind(error));
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ STOMP's limits

    /**
     * The Java client reduced to what STOMP lets a client know and say: a consumer goes without telling what it
     * delivered last, the redelivery counter is seen as 0 or 1 (on a topic as 0), and a poison ack carries no cause.
     */
    @SuppressWarnings("serial")  // a factory is never serialised here
    private static final class StompLike extends ActiveMQConnectionFactory {
        StompLike(String url) {
            super(url);
        }

        @Override
        protected Transport createTransport() throws JMSException {
            return new TransportFilter(super.createTransport()) {
                @Override
                public void oneway(Object command) throws IOException {
                    super.oneway(forget(command));
                }

                @Override
                public Object request(Object command) throws IOException {
                    return super.request(forget(command));
                }

                @Override
                public Object request(Object command, int timeout) throws IOException {
                    return super.request(forget(command), timeout);
                }

                @Override
                public FutureResponse asyncRequest(Object command, ResponseCallback callback) throws IOException {
                    return super.asyncRequest(forget(command), callback);
                }

                @Override
                public void onCommand(Object command) {
                    if (command instanceof MessageDispatch && ((MessageDispatch) command).getMessage() != null) {
                        MessageDispatch dispatch = (MessageDispatch) command;
                        int shown = dispatch.getDestination().isTopic() ? 0 : 1;
                        dispatch.setRedeliveryCounter(Math.min(shown, dispatch.getRedeliveryCounter()));
                        dispatch.getMessage().setRedeliveryCounter(dispatch.getRedeliveryCounter());
                    }
                    super.onCommand(command);
                }
            };
        }

        private static Object forget(Object command) {
            if (command instanceof RemoveInfo) {
                ((RemoveInfo) command).setLastDeliveredSequenceId(RemoveInfo.LAST_DELIVERED_UNKNOWN);
            } else if (command instanceof MessageAck) {
                ((MessageAck) command).setPoisonCause(null);
            }
            return command;
        }
    }

    // ------------------------------------------------------------------------------------------------ small things

    private static ObjectNode ok() {
        return NODES.objectNode().put("ok", true);
    }

    private static ObjectNode error(String kind, String detail) {
        return NODES.objectNode().put("error", kind).put("detail", detail);
    }

    /** The closed list of FORMAT.md; the order matters where one class extends another. */
    private static String kind(Throwable error) {
        if (error instanceof InvalidDestinationException) return "InvalidDestination";
        if (error instanceof InvalidSelectorException) return "InvalidSelector";
        if (error instanceof InvalidClientIDException) return "InvalidClientID";
        if (error instanceof TransactionRolledBackException) return "TransactionRolledBack";
        if (error instanceof TransactionInProgressException) return "TransactionInProgress";
        if (error instanceof MessageFormatException) return "MessageFormat";
        if (error instanceof MessageNotReadableException) return "MessageNotReadable";
        if (error instanceof MessageNotWriteableException) return "MessageNotWriteable";
        if (error instanceof ResourceAllocationException) return "ResourceAllocation";
        if (error instanceof JMSSecurityException) return "Security";
        if (error instanceof ConnectionFailedException) return "ConnectionFailed";
        if (error instanceof ConfigurationException) return "Configuration";
        if (error instanceof jakarta.jms.IllegalStateException) return "IllegalState";
        if (error instanceof UnsupportedOperationException) return "Unsupported";
        return error instanceof JMSException ? "JMS" : "Runtime";
    }

    private static ObjectNode asObject(JsonNode node) {
        return node instanceof ObjectNode ? (ObjectNode) node : NODES.objectNode();
    }

    private static long millis(double seconds) {
        return Math.round(1000 * seconds);
    }

    private static void sleep(double seconds) throws InterruptedException {
        if (seconds > 0) {
            Thread.sleep(millis(seconds));
        }
    }

    private static double secondsSince(long begin) {
        return rounded(System.nanoTime() - begin);
    }

    private static double rounded(long nanos) {
        return Math.round(nanos / 1e6) / 1e3;
    }

    private static void closeQuietly(AutoCloseable thing) {
        try {
            thing.close();
        } catch (Exception alreadyGone) {
            // the scenario has its outcomes; whether a dead connection also closes well is not its subject
        }
    }
}
