import jakarta.jms.Session;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Fails with each message of a queue until it is a dead letter: FailingPeer URL QUEUE MESSAGES */
public class FailingPeer {
    public static void main(String[] arguments) throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        factory.getRedeliveryPolicy().setMaximumRedeliveries(1);
        factory.getRedeliveryPolicy().setInitialRedeliveryDelay(1);
        CountDownLatch attempts = new CountDownLatch(2 * Integer.parseInt(arguments[2]));
        try (ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            session.createConsumer(session.createQueue(arguments[1])).setMessageListener(message -> {
                attempts.countDown();
                throw new IllegalStateException("no stock: article 42");
            });
            connection.start();
            if (!attempts.await(30, TimeUnit.SECONDS)) {
                throw new IllegalStateException("nothing came");
            }
        }
    }
}
