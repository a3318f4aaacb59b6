import jakarta.jms.*;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Sends a MapMessage with every type, or prints the one that it receives: MapPeer URL send|receive QUEUE. */
public class MapPeer {
    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        try (Connection connection = factory.createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(arguments[2]);
            if (arguments[1].equals("send")) {
                send(session, queue);
            } else {
                print((MapMessage) session.createConsumer(queue).receive(5000));
            }
        }
    }

    private static void send(Session session, Queue queue) throws JMSException {
        MapMessage message = session.createMapMessage();
        message.setString("text", "Z\u00fcrich <&> \"true\"");
        message.setString("digits", "007");
        message.setInt("int", -7);
        message.setLong("long", 1L << 40);
        message.setShort("short", (short) 3);
        message.setDouble("double", 0.1);
        message.setBoolean("truth", true);
        message.setChar("char", 'x');
        message.setBytes("bytes", new byte[] {0, -1});
        message.setObject("nothing", null);
        session.createProducer(queue).send(message);
    }

    private static void print(MapMessage message) throws JMSException {
        List<String> names = new ArrayList<>(Collections.list((Enumeration<String>) message.getMapNames()));
        Collections.sort(names);
        for (String name : names) {
            Object value = message.getObject(name);
            String kind = value == null ? "null" : value.getClass().getSimpleName();
            String text = value instanceof byte[] bytes ? Arrays.toString(bytes) : String.valueOf(value);
            System.out.println(name + " " + kind + " " + text.replace("\u00fc", "ue"));
        }
    }
}
