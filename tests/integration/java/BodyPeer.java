import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Sends a message of each kind that is named, with the kind as property: BodyPeer URL QUEUE DELIVERY KIND... */
public class BodyPeer {
    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        try (Connection connection = factory.createConnection()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue(arguments[1]));
            boolean kept = arguments[2].equals("persistent");
            producer.setDeliveryMode(kept ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT);
            for (String kind : List.of(arguments).subList(3, arguments.length)) {
                Message message = make(session, kind);
                message.setStringProperty("kind", kind);
                if (kind.equals("rich")) {
                    producer.send(message, producer.getDeliveryMode(), 7, 600_000);
                } else {
                    producer.send(message);
                }
            }
        }
    }

    private static Message make(Session session, String kind) throws JMSException {
        switch (kind) {
            case "text":
                return session.createTextMessage("Z\u00fcrich \ud83d\ude00");
            case "numbers": {
                Message message = session.createTextMessage("numbers");
                message.setDoubleProperty("ratio", Double.NaN);
                message.setFloatProperty("least", Float.NEGATIVE_INFINITY);
                return message;
            }
            case "rich": {
                Message message = session.createTextMessage("rich");
                message.setJMSCorrelationID("c: 1\\\n");
                message.setJMSType("order");
                message.setJMSReplyTo(session.createQueue("answers"));
                message.setStringProperty("JMSXGroupID", "g");
                message.setStringProperty("text", "Z\u00fcrich: \\\n");
                message.setStringProperty("empty", "");
                message.setIntProperty("count", 7);
                message.setBooleanProperty("urgent", true);
                return message;
            }
            case "xml":
                return session.createTextMessage("<order>7</order>");
            case "xml-map":
                return session.createTextMessage("<map><entry><string>a</string><int>1</int></entry></map>");
            case "null": {
                Message message = session.createTextMessage("null");
                message.setStringProperty("nothing", null);
                return message;
            }
            case "empty":
                return session.createTextMessage("");
            case "bytes": {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes("Z\u00fcrich".getBytes(StandardCharsets.UTF_8));
                return message;
            }
            case "map": {
                MapMessage message = session.createMapMessage();
                message.setInt("a", 1);
                message.setInt("b", 2);
                return message;
            }
            case "stream": {
                StreamMessage message = session.createStreamMessage();
                message.writeString("x");
                return message;
            }
            case "trusted":
                return session.createObjectMessage("x");
            case "object":
                return session.createObjectMessage(new ArrayList<>(List.of("x")));
            default:
                throw new IllegalArgumentException(kind);
        }
    }
}
