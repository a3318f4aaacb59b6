import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** Starts an Artemis that has no such program of its own yet, by the etc/broker.xml of the working folder. */
public class EmbeddedArtemis {
    public static void main(String[] arguments) throws Exception {
        EmbeddedActiveMQ broker = new EmbeddedActiveMQ();
        broker.setConfigResourcePath("file:etc/broker.xml");
        broker.start();
    }
}
