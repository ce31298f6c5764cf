import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/** A lock client for harness: put your lock in the place of the calls to Redis. {@link HarnessClient} is the protocol. */
public class MyLock extends HarnessClient {
    static final String COMPARE_AND_DELETE =
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    static final String COMPARE_AND_EXTEND =
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

    /** One connection; a call that fails or times out closes it, so that no answer is taken for another's. */
    static class Redis {
        final Socket socket = new Socket();
        final InputStream in;

        Redis(String endpoint, int timeoutMs) throws IOException {
            int colon = endpoint.lastIndexOf(':');
            int port = Integer.parseInt(endpoint.substring(colon + 1));
            socket.setTcpNoDelay(true);
            socket.connect(new InetSocketAddress(endpoint.substring(0, colon), port), timeoutMs);
            socket.setSoTimeout(timeoutMs);
            in = new BufferedInputStream(socket.getInputStream());
        }

        /** A text, a number, or null. */
        Object call(String... words) throws IOException, Fail {
            StringBuilder request = new StringBuilder("*" + words.length + "\r\n");
            for (String word : words) {
                request.append('$').append(word.getBytes(StandardCharsets.UTF_8).length);
                request.append("\r\n").append(word).append("\r\n");
            }
            socket.getOutputStream().write(request.toString().getBytes(StandardCharsets.UTF_8));
            String line = line();
            String text = line.substring(1);
            switch (line.charAt(0)) {
                case ':':
                    return Long.parseLong(text);
                case '-':
                    throw new Fail(text);
                case '$':
                    if (text.equals("-1")) {
                        return null;
                    }
                    int size = Integer.parseInt(text) + 2;
                    byte[] value = in.readNBytes(size);
                    if (value.length < size) {
                        throw new EOFException("the server closed the connection");
                    }
                    return new String(value, 0, value.length - 2, StandardCharsets.UTF_8);
                default:
                    return text;
            }
        }

        private String line() throws IOException {
            StringBuilder line = new StringBuilder();
            for (int one = in.read(); one != '\n'; one = in.read()) {
                if (one < 0) {
                    throw new EOFException("the server closed the connection");
                }
                line.append((char) one);
            }
            return line.substring(0, line.length() - 1);
        }
    }

    /** A lock that is held: its value on the server, and the timer of the lost signal. */
    record Hold(String value, ScheduledFuture<?> timer) {}

    /** A value that an unknown operation may have left. */
    record Leftover(String lock, String value) {}

    final Map<String, Hold> held = new HashMap<>();
    final Deque<Leftover> leftovers = new ArrayDeque<>();
    final ScheduledExecutorService timers = Executors.newScheduledThreadPool(1, HarnessClient::daemon);
    String endpoint;
    long leaseMs;
    Redis redis;

    public static void main(String[] arguments) throws IOException, InterruptedException {
        serve(MyLock::new);
    }

    /** The promises of this lock: docs/client-protocol.md has the words. */
    @Override
    protected String contract() {
        return "{\"lease\":true,\"renews\":false,\"extends\":true,\"fifo\":false,\"tries\":true,\"wakes\":\"polls\","
                + "\"owner\":\"server\",\"token\":\"none\",\"keys\":\"harness:{lock}\",\"value\":\"string\"}";
    }

    @Override
    protected void open(List<String> endpoints, long leaseMs) throws IOException {
        this.endpoint = endpoints.get(0);
        this.leaseMs = leaseMs;
        connect(); // it fails if there is no connection
    }

    void connect() throws IOException {
        if (redis == null) {
            redis = new Redis(endpoint, (int) (leaseMs / 3));
        }
    }

    Object call(String... words) throws IOException, Fail {
        connect();
        try {
            return redis.call(words);
        } catch (IOException error) {
            redis.socket.close();
            redis = null;
            throw error;
        }
    }

    boolean delete(String lock, String value) throws IOException, Fail {
        try {
            return Long.valueOf(1).equals(call("EVAL", COMPARE_AND_DELETE, "1", "harness:" + lock, value));
        } catch (IOException error) {
            leftovers.add(new Leftover(lock, value)); // it may have happened or not
            throw error;
        }
    }

    @Override
    protected String acquire(String lock, long waitMs, boolean read) throws IOException, Fail, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
        while (!leftovers.isEmpty()) {
            Leftover left = leftovers.pop();
            try {
                delete(left.lock(), left.value());
            } catch (IOException error) {
                throw new Fail("cleaning up first: " + error.getMessage()); // the lock was not asked for yet
            }
        }
        String value = UUID.randomUUID().toString();
        while (true) {
            long asked = System.nanoTime();
            Object answer;
            try {
                answer = call("SET", "harness:" + lock, value, "NX", "PX", Long.toString(leaseMs));
            } catch (IOException error) {
                leftovers.add(new Leftover(lock, value)); // it may have happened or not
                throw error;
            }
            if (answer != null) {
                return hold(lock, value, asked);
            }
            if (System.nanoTime() - deadline >= 0) {
                throw new Fail(waitMs > 0 ? "timeout" : "busy");
            }
            Thread.sleep(20);
        }
    }

    String hold(String lock, String value, long asked) throws IOException, Fail {
        if (!believe(lock, value, asked)) {
            delete(lock, value);
            throw new Fail("timeout");
        }
        return value;
    }

    boolean believe(String lock, String value, long asked) {
        // counted from before the request was sent, so that it ends earlier here than on the server
        long left = asked + TimeUnit.MILLISECONDS.toNanos(leaseMs) * 85 / 100 - System.nanoTime();
        if (left > 0) {
            held.put(lock, new Hold(value, timers.schedule(() -> lost(lock, "lease ends"), left, TimeUnit.NANOSECONDS)));
        }
        return left > 0;
    }

    @Override
    protected void extend(String lock) throws IOException, Fail {
        Hold hold = held.get(lock);
        if (hold == null) {
            throw new Fail("not held");
        }
        long asked = System.nanoTime();
        Object extended = call("EVAL", COMPARE_AND_EXTEND, "1", "harness:" + lock, hold.value(), Long.toString(leaseMs));
        if (!Long.valueOf(1).equals(extended)) {
            throw new Fail("not held: it expired");
        }
        hold.timer().cancel(false);
        believe(lock, hold.value(), asked);
    }

    @Override
    protected void release(String lock) throws IOException, Fail {
        Hold hold = held.remove(lock);
        if (hold == null) {
            throw new Fail("not held");
        }
        hold.timer().cancel(false);
        if (!delete(lock, hold.value())) {
            throw new Fail("not held: it expired");
        }
    }

    @Override
    protected void close() throws IOException, Fail {
        for (String lock : new ArrayList<>(held.keySet())) {
            release(lock);
        }
        timers.shutdownNow();
    }
}
