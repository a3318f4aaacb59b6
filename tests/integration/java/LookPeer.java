import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Prints what a browser of a queue sees of each message, a line each, with tabs between: LookPeer URL QUEUE. */
public class LookPeer {
    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(arguments[1]);
            for (Object message : Collections.list(session.createBrowser(queue).getEnumeration())) {
                System.out.println(String.join("\t", seen((Message) message)));
            }
        }
    }

    private static List<String> seen(Message message) throws Exception {
        List<String> seen = new ArrayList<>();
        seen.add("kind=" + message.getStringProperty("kind"));
        seen.add("class=" + message.getClass().getSimpleName().replace("ActiveMQ", ""));
        seen.add("body=" + body(message));
        seen.add("mode=" + message.getJMSDeliveryMode());
        seen.add("priority=" + message.getJMSPriority());
        seen.add("expires=" + (message.getJMSExpiration() != 0));
        seen.add("timestamp=" + message.getJMSTimestamp());
        seen.add("correlation=" + shown(message.getJMSCorrelationID()));
        seen.add("type=" + shown(message.getJMSType()));
        seen.add("reply=" + shown(message.getJMSReplyTo()));
        seen.add("group=" + shown(message.getStringProperty("JMSXGroupID")));
        for (Object name : Collections.list(message.getPropertyNames())) {
            if (!name.toString().startsWith("JMSX")) {
                seen.add("." + name + "=" + shown(message.getObjectProperty(name.toString())));
            }
        }
        return seen;
    }

    private static String body(Message message) throws Exception {
        if (message instanceof TextMessage) {
            return shown(((TextMessage) message).getText());
        }
        if (message instanceof BytesMessage) {
            byte[] bytes = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(bytes);
            return List.of(java.util.Arrays.toString(bytes)).toString();
        }
        if (message instanceof MapMessage) {
            TreeMap<String, String> content = new TreeMap<>();
            for (Object name : Collections.list(((MapMessage) message).getMapNames())) {
                content.put(name.toString(), shown(((MapMessage) message).getObject(name.toString())));
            }
            return content.toString();
        }
        return message instanceof ObjectMessage ? shown(((ObjectMessage) message).getObject()) : "";
    }

    /** A value with its type, on one line. */
    private static String shown(Object value) {
        String text = String.valueOf(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t");
        return value == null ? "" : value.getClass().getSimpleName() + " " + text;
    }
}
