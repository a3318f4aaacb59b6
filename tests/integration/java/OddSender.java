import jakarta.jms.*;
import java.util.Scanner;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * Sends a TextMessage for each line of its input: OddSender URL.
 *
 * A line is `QUEUE persistent|volatile TTL BODY [NAME=VALUE ...]`, separated by tabs: the milliseconds that it lives (0: for
 * ever), its text, and its string properties. The pictures of NUL and of a line feed (U+2400, U+2424) stand for these.
 */
public class OddSender {
    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        try (Connection connection = factory.createConnection(); Scanner lines = new Scanner(System.in, "UTF-8")) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(null);
            while (lines.hasNextLine()) {
                String[] parts = lines.nextLine().replace('\u2400', (char) 0).replace('\u2424', (char) 10).split("\t");
                TextMessage message = session.createTextMessage(parts[3]);
                for (int i = 4; i < parts.length; i++) {
                    String[] property = parts[i].split("=", 2);
                    message.setStringProperty(property[0], property[1]);
                }
                int mode = parts[1].equals("persistent") ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
                producer.send(session.createQueue(parts[0]), message, mode, 4, Long.parseLong(parts[2]));
            }
        }
    }
}
