import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Apache Curator's locks under harness: {@code CuratorLock mutex} or {@code read-write}.
 * https://curator.apache.org/docs/recipes-shared-reentrant-lock
 *
 * <p>Curator reports SUSPENDED and LOST to a listener, which its documentation strongly recommends for a lock: both become
 * {@code lost}. A lock belongs to the thread that acquired it, so each client has a thread. The protocol is described in
 * docs/client-protocol.md.
 */
public final class CuratorLock {
    private static final String MUTEX = "{\"lease\":true,\"renews\":true,\"fifo\":true,\"tries\":true,\"reentrant\":true,"
            + "\"owner\":\"server\",\"token\":\"none\",\"keys\":\"/harness/{lock}\"}";
    private static final String READ_WRITE = "{\"lease\":true,\"renews\":true,\"tries\":true,\"read\":true,"
            + "\"owner\":\"none\",\"token\":\"none\",\"value\":\"none\"}";

    private final int number;
    private final boolean readWrite;
    private final BlockingQueue<String> requests = new LinkedBlockingQueue<>();
    private final Map<String, InterProcessLock> held = new ConcurrentHashMap<>();
    private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
    private CuratorFramework curator;

    private CuratorLock(int number, boolean readWrite) {
        this.number = number;
        this.readWrite = readWrite;
    }

    /** It surely did not happen. */
    private static final class Fail extends Exception {
        Fail(String why) {
            super(why);
        }
    }

    public static void main(String[] arguments) {
        boolean readWrite = arguments.length > 0 && arguments[0].equals("read-write");
        Map<String, CuratorLock> clients = new ConcurrentHashMap<>();
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String request = lines.nextLine();
            String client = field(request, "client");
            if (field(request, "op").equals("open")) {
                CuratorLock opened = new CuratorLock(Integer.parseInt(client), readWrite);
                clients.put(client, opened);
                Thread thread = new Thread(opened::serve);
                thread.setDaemon(true);
                thread.start();
            }
            clients.get(client).requests.add(request);
        }
        clients.values().forEach(CuratorLock::close);
    }

    private void serve() {
        while (true) {
            try {
                String request = requests.take();
                say(answer(request));
                if (field(request, "op").equals("close")) {
                    return;
                }
            } catch (InterruptedException over) {
                return;
            }
        }
    }

    private String answer(String request) {
        String id = field(request, "id");
        try {
            return "{\"type\":\"ok\",\"id\":" + id + perform(request) + "}";
        } catch (Fail fail) {
            return "{\"type\":\"fail\",\"id\":" + id + ",\"error\":" + quoted(fail.getMessage()) + "}";
        } catch (Exception unknown) {
            return "{\"type\":\"info\",\"id\":" + id + ",\"error\":" + quoted(unknown.toString()) + "}";
        }
    }

    /** The fields of the answer. */
    private String perform(String request) throws Exception {
        switch (field(request, "op")) {
            case "open":
                open(texts(request, "endpoints"), Integer.parseInt(field(request, "lease_ms")));
                return ",\"contract\":" + (readWrite ? READ_WRITE : MUTEX);
            case "acquire":
                acquire(field(request, "lock"), Long.parseLong(field(request, "wait_ms")), "read".equals(field(request, "mode")));
                return readWrite ? "" : ",\"owner\":\"0x" + Long.toHexString(session()) + "\"";
            case "release":
                release(field(request, "lock"));
                return "";
            default:
                close();
                return "";
        }
    }

    private long session() throws Exception {
        return curator.getZookeeperClient().getZooKeeper().getSessionId();
    }

    private void open(List<String> endpoints, int leaseMs) throws Exception {
        curator = CuratorFrameworkFactory.newClient(
                String.join(",", endpoints), leaseMs, leaseMs, new ExponentialBackoffRetry(100, 3));
        curator.getConnectionStateListenable().addListener((client, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                held.keySet().forEach(lock -> lost(lock, state.toString()));
            }
        });
        curator.start();
        if (!curator.blockUntilConnected(10, TimeUnit.SECONDS)) {
            throw new Fail("no connection");
        }
    }

    private void acquire(String lock, long waitMs, boolean read) throws Exception {
        InterProcessLock contender = locks.computeIfAbsent(lock + (read ? "/read" : ""), name -> make(lock, read));
        if (!contender.acquire(waitMs, TimeUnit.MILLISECONDS)) {
            throw new Fail(waitMs > 0 ? "timeout" : "busy");
        }
        held.put(lock, contender);
        if (!curator.getZookeeperClient().isConnected()) {
            lost(lock, "not connected"); // the listener was called before the lock was in `held`
        }
    }

    private InterProcessLock make(String lock, boolean read) {
        String path = "/harness/" + lock;
        if (!readWrite) {
            return new InterProcessMutex(curator, path);
        }
        InterProcessReadWriteLock pair = new InterProcessReadWriteLock(curator, path);
        return read ? pair.readLock() : pair.writeLock();
    }

    private void release(String lock) throws Exception {
        InterProcessLock contender = held.remove(lock);
        if (contender == null) {
            throw new Fail("not held");
        }
        try {
            contender.release();
            if (contender.isAcquiredInThisProcess()) {
                held.put(lock, contender); // it was acquired more than once
            }
        } catch (IllegalMonitorStateException error) {
            throw new Fail("not held: " + error.getMessage());
        }
    }

    private void close() {
        if (curator != null) {
            curator.close();
        }
    }

    private void lost(String lock, String cause) {
        long at = System.nanoTime(); // CLOCK_MONOTONIC on Linux
        say("{\"type\":\"signal\",\"client\":" + number + ",\"f\":\"lost\",\"lock\":" + quoted(lock) + ",\"at\":" + at
                + ",\"cause\":" + quoted(cause) + "}");
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    /** A number or a text without escapes, which is all that requests have; {@code null} where there is none. */
    private static String field(String request, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\\s*\"?([^\",}\\]]*)").matcher(request);
        return found.find() ? found.group(1) : null;
    }

    private static List<String> texts(String request, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\\s*\\[([^\\]]*)\\]").matcher(request);
        List<String> texts = new ArrayList<>();
        if (found.find()) {
            Matcher each = Pattern.compile("\"([^\"]*)\"").matcher(found.group(1));
            while (each.find()) {
                texts.add(each.group(1));
            }
        }
        return texts;
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("[\\p{Cntrl}]", " ") + "\"";
    }
}
