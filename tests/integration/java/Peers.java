import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;

/**
 * Runs other programs of this folder, one after the other, until its input ends.
 *
 * A request is a number of texts and these: the folder of the program's classes, its name, what it is told on its input,
 * and its arguments. An answer is two texts: why it failed, empty if it did not, and what it printed. A text is the
 * number of its bytes, and those, in UTF-8; numbers are four bytes.
 */
public class Peers {
    public static void main(String[] none) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        InputStream nothing = InputStream.nullInputStream();
        for (int count = number(requests); count > 0; count = number(requests)) {
            String[] request = new String[count];
            for (int i = 0; i < count; i++) {
                request[i] = new String(requests.readNBytes(requests.readInt()), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setIn(new ByteArrayInputStream(request[2].getBytes(StandardCharsets.UTF_8)));
            String failure = run(request);
            System.setIn(nothing);
            for (byte[] text : new byte[][] {failure.getBytes(StandardCharsets.UTF_8), printed.toByteArray()}) {
                answers.writeInt(text.length);
                answers.write(text);
            }
            answers.flush();
        }
    }

    /** The number of texts of the next request, 0 if there is none. */
    private static int number(DataInputStream requests) throws IOException {
        byte[] bytes = requests.readNBytes(4);
        return bytes.length < 4 ? 0 : java.nio.ByteBuffer.wrap(bytes).getInt();
    }

    /** Runs a program; returns why it failed. */
    private static String run(String[] request) throws Exception {
        ClassLoader before = Thread.currentThread().getContextClassLoader();
        URL folder = Path.of(request[0]).toUri().toURL();
        try (URLClassLoader classes = new URLClassLoader(new URL[] {folder})) {
            Thread.currentThread().setContextClassLoader(classes);
            String[] arguments = java.util.Arrays.copyOfRange(request, 3, request.length);
            classes.loadClass(request[1]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return "";
        } catch (InvocationTargetException thrown) {
            StringWriter said = new StringWriter();
            thrown.getCause().printStackTrace(new PrintWriter(said, true));
            return said.toString();
        } finally {
            Thread.currentThread().setContextClassLoader(before);
        }
    }
}
