import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
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
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A lock client for harness. Put your lock in the place of the calls to Redis in {@link Client}; the rest is the protocol. */
public class MyLock {
    /** What this lock promises: docs/client-protocol.md has the words. */
    static final String CONTRACT = "{\"lease\":true,\"renews\":false,\"fifo\":false,\"tries\":true,\"wakes\":\"polls\","
            + "\"owner\":\"server\",\"token\":\"none\",\"keys\":\"harness:{lock}\",\"value\":\"string\"}";
    static final String COMPARE_AND_DELETE =
            "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

    /** It surely did not happen. Any other exception: it is not known whether it happened. */
    static class Refused extends Exception {
        Refused(String reason) {
            super(reason);
        }
    }

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
        Object call(String... words) throws IOException, Refused {
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
                    throw new Refused(text);
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

    static class Client {
        final long number;
        final String endpoint;
        final long leaseMs;
        final Map<String, Hold> held = new HashMap<>();
        final Deque<Leftover> leftovers = new ArrayDeque<>();
        final ScheduledExecutorService timers = Executors.newScheduledThreadPool(1, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        Redis redis;

        Client(long number, String endpoint, long leaseMs) throws IOException {
            this.number = number;
            this.endpoint = endpoint;
            this.leaseMs = leaseMs;
            connect(); // `open` fails if there is no connection
        }

        void connect() throws IOException {
            if (redis == null) {
                redis = new Redis(endpoint, (int) (leaseMs / 3));
            }
        }

        Object call(String... words) throws IOException, Refused {
            connect();
            try {
                return redis.call(words);
            } catch (IOException error) {
                redis.socket.close();
                redis = null;
                throw error;
            }
        }

        boolean delete(String lock, String value) throws IOException, Refused {
            try {
                return Long.valueOf(1).equals(call("EVAL", COMPARE_AND_DELETE, "1", "harness:" + lock, value));
            } catch (IOException error) {
                leftovers.add(new Leftover(lock, value)); // it may have happened or not
                throw error;
            }
        }

        /** The fields of the reply. */
        String acquire(String lock, long waitMs) throws IOException, Refused, InterruptedException {
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs);
            while (!leftovers.isEmpty()) {
                Leftover left = leftovers.pop();
                try {
                    delete(left.lock(), left.value());
                } catch (IOException error) {
                    throw new Refused("cleaning up first: " + error.getMessage()); // the lock was not asked for yet
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
                    throw new Refused(waitMs > 0 ? "timeout" : "busy");
                }
                Thread.sleep(20);
            }
        }

        String hold(String lock, String value, long asked) throws IOException, Refused {
            // counted from before the SET was sent, so that it ends earlier here than on the server
            long left = asked + TimeUnit.MILLISECONDS.toNanos(leaseMs) * 85 / 100 - System.nanoTime();
            if (left <= 0) {
                delete(lock, value);
                throw new Refused("timeout");
            }
            held.put(lock, new Hold(value, timers.schedule(() -> lost(lock), left, TimeUnit.NANOSECONDS)));
            return ",\"owner\":" + quoted(value);
        }

        void lost(String lock) {
            long at = System.nanoTime(); // CLOCK_MONOTONIC on Linux
            say("{\"type\":\"signal\",\"client\":" + number + ",\"f\":\"lost\",\"lock\":" + quoted(lock) + ",\"at\":" + at
                    + ",\"cause\":\"lease ends\"}");
        }

        void release(String lock) throws IOException, Refused {
            Hold hold = held.remove(lock);
            if (hold == null) {
                throw new Refused("not held");
            }
            hold.timer().cancel(false);
            if (!delete(lock, hold.value())) {
                throw new Refused("not held: it expired");
            }
        }

        void close() throws IOException, Refused {
            for (String lock : new ArrayList<>(held.keySet())) {
                release(lock);
            }
            timers.shutdownNow();
        }
    }

    /** The fields of the reply to a request. */
    static String perform(Map<Long, Client> clients, String request) throws Exception {
        long number = number(request, "client");
        switch (text(request, "op")) {
            case "open":
                clients.put(number, new Client(number, firstEndpoint(request), number(request, "lease_ms")));
                return ",\"contract\":" + CONTRACT;
            case "acquire":
                return clients.get(number).acquire(text(request, "lock"), number(request, "wait_ms"));
            case "release":
                clients.get(number).release(text(request, "lock"));
                return "";
            case "close":
                clients.remove(number).close();
                return "";
            default:
                throw new Refused("no such operation: " + text(request, "op"));
        }
    }

    public static void main(String[] arguments) throws IOException {
        Map<Long, Client> clients = new HashMap<>();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            String outcome = "ok";
            String fields;
            try {
                fields = perform(clients, line);
            } catch (Refused refused) {
                outcome = "fail";
                fields = ",\"error\":" + quoted(refused.getMessage());
            } catch (Exception error) { // it is not known whether it happened
                outcome = "info";
                fields = ",\"error\":" + quoted(error.toString());
            }
            say("{\"type\":\"" + outcome + "\",\"id\":" + number(line, "id") + fields + "}");
        }
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    // Requests are flat and their texts are plain, so that patterns read them without a library. With one, use it.

    static String text(String request, String field) {
        return found(request, "\"" + field + "\"\\s*:\\s*\"([^\"]*)\"", field);
    }

    static long number(String request, String field) {
        return Long.parseLong(found(request, "\"" + field + "\"\\s*:\\s*(\\d+)", field));
    }

    static String firstEndpoint(String request) {
        return found(request, "\"endpoints\"\\s*:\\s*\\[\\s*\"([^\"]*)\"", "endpoints");
    }

    private static String found(String request, String pattern, String field) {
        Matcher matcher = Pattern.compile(pattern).matcher(request);
        if (!matcher.find()) {
            throw new IllegalArgumentException("a request without " + field + ": " + request);
        }
        return matcher.group(1);
    }

    static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                json.append('\\').append(letter);
            } else {
                json.append(letter < ' ' ? String.format("\\u%04x", (int) letter) : letter);
            }
        }
        return json.append('"').toString();
    }
}
