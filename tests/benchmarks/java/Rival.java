import JMSPKG.jms.*;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * The Java client in the benchmarks. Reads lines "work mode messages queue" and answers each with a line of JSON, so that
 * its machine stays warm. Arguments: the API ("openwire" or "core") and the broker's URL.
 */
public class Rival {
    static final int BATCH = 100;
    static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static boolean core;
    static String url;

    public static void main(String[] arguments) throws Exception {
        core = arguments[0].equals("core");
        url = arguments[1];
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        tell("up");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] asked = line.trim().split(" ");
            String mode = asked[1];
            int messages = Integer.parseInt(asked[2]);
            String answer;
            try {
                switch (asked[0]) {
                    case "consume": answer = consume(mode, messages, asked[3]); break;
                    case "produce": answer = produce(mode, messages, asked[3]); break;
                    default: answer = latency(messages, asked[3]);
                }
            } catch (Throwable error) {
                answer = "{\"error\":\"" + ("" + error).replace('"', '\'').replace('\n', ' ') + "\"}";
            }
            tell(answer);
        }
    }

    static void tell(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static Connection connect(boolean optimized, boolean unconfirmed) throws Exception {
        String options = core
                ? "?consumerWindowSize=1048576" + (unconfirmed ? "&blockOnDurableSend=false" : "")
                : "?jms.prefetchPolicy.queuePrefetch=1000&jms.watchTopicAdvisories=false"
                        + (optimized ? "&jms.optimizeAcknowledge=true" : "")
                        + (unconfirmed ? "&jms.useAsyncSend=true" : "");
        String name = core
                ? "org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory"
                : "org.apache.activemq.ActiveMQConnectionFactory";
        Object factory = Class.forName(name).getConstructor(String.class).newInstance(url + options);
        return ((ConnectionFactory) factory).createConnection();
    }

    static Session open(Connection connection, String mode) throws JMSException {
        if (mode.startsWith("tx")) {
            return connection.createSession(true, Session.SESSION_TRANSACTED);
        }
        switch (mode) {
            case "client100": return connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
            case "individual": return connection.createSession(false, core ? 101 : 4);
            case "dups_ok": return connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
            default: return connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        }
    }

    static String consume(String mode, int messages, String queue) throws Exception {
        Connection connection = connect(mode.equals("optimized"), false);
        try {
            Session session = open(connection, mode);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            connection.start();
            long began = 0;
            long used = 0;
            int batch = mode.equals("tx1") ? 1 : BATCH;
            for (int seen = 1; seen <= messages; seen++) {
                Message message = consumer.receive(10000);
                if (message == null) {
                    throw new Exception("stalled at " + (seen - 1));
                }
                if (seen == 1) {
                    began = System.nanoTime();
                    used = SYSTEM.getProcessCpuTime();
                }
                boolean ends = seen % batch == 0 || seen == messages;
                if (mode.equals("individual") || (mode.equals("client100") && ends)) {
                    message.acknowledge();
                } else if (mode.startsWith("tx") && ends) {
                    session.commit();
                }
            }
            connection.close();
            return told(messages, began, used);
        } finally {
            connection.close();
        }
    }

    static String produce(String mode, int messages, String queue) throws Exception {
        Connection connection = connect(false, mode.equals("pipelined"));
        try {
            connection.start();
            Session session = open(connection, mode);
            MessageProducer producer = session.createProducer(session.createQueue(queue));
            boolean persistent = !mode.equals("unconfirmed");
            producer.setDeliveryMode(persistent ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
            String text = "x".repeat(256);
            long began = System.nanoTime();
            long used = SYSTEM.getProcessCpuTime();
            for (int number = 0; number < messages; number++) {
                producer.send(session.createTextMessage(text));
                if (mode.equals("tx100") && number % BATCH == BATCH - 1) {
                    session.commit();
                }
            }
            connection.close();
            return told(messages, began, used);
        } finally {
            connection.close();
        }
    }

    static String latency(int messages, String queue) throws Exception {
        Connection connection = connect(false, false);
        try {
            Session session = open(connection, "auto");
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            long[] delays = new long[messages];
            int[] seen = {0};
            CountDownLatch done = new CountDownLatch(1);
            consumer.setMessageListener(message -> {
                long now = System.nanoTime();
                if (seen[0] < messages) {
                    delays[seen[0]++] = now - sentAt(message);
                }
                if (seen[0] == messages) {
                    done.countDown();
                }
            });
            connection.start();
            Thread.sleep(300);
            long used = SYSTEM.getProcessCpuTime();
            tell("ready");
            done.await(120, TimeUnit.SECONDS);
            double cpu = (SYSTEM.getProcessCpuTime() - used) / 1e9;
            Arrays.sort(delays);
            return String.format(Locale.ROOT, "{\"messages\":%d,\"us\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f}",
                    messages, cpu / messages * 1e6, delays[messages / 2] / 1e3,
                    delays[(int) (messages * .9)] / 1e3, delays[(int) (messages * .99)] / 1e3);
        } finally {
            connection.close();
        }
    }

    static long sentAt(Message message) {
        try {
            if (message instanceof TextMessage) {
                return Long.parseLong(((TextMessage) message).getText().substring(0, 19));
            }
            byte[] digits = new byte[19];
            ((BytesMessage) message).readBytes(digits);
            return Long.parseLong(new String(digits));
        } catch (JMSException error) {
            throw new java.lang.IllegalStateException(error);
        }
    }

    static String told(int messages, long began, long used) {
        double seconds = (System.nanoTime() - began) / 1e9;
        double cpu = (SYSTEM.getProcessCpuTime() - used) / 1e9;
        return String.format(Locale.ROOT, "{\"messages\":%d,\"rate\":%.1f,\"us\":%.2f}",
                messages, messages / seconds, cpu / messages * 1e6);
    }
}
