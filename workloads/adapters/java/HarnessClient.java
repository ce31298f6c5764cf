import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The client protocol of harness (docs/client-protocol.md) for locks written in Java: JSON lines over stdin and stdout.
 *
 * <p>Extend this class, and call {@link #serve}. Throw {@link Fail} if it surely did not happen; any other exception means that
 * it is not known whether it happened, and becomes {@code info}. Each client has a thread, for a library that ties a lock to its
 * thread. Output of a library goes to standard error: the protocol alone has standard output.
 */
public abstract class HarnessClient {
    /** It surely did not happen: busy, timeout, not held. */
    public static final class Fail extends Exception {
        public Fail(String reason) {
            super(reason);
        }
    }

    private static final PrintStream PROTOCOL =
            new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

    private final ExecutorService thread = Executors.newSingleThreadExecutor(HarnessClient::daemon);
    private String number;

    /** The promises of the lock, as JSON; "Contract" in docs/client-protocol.md has the fields. */
    protected abstract String contract();

    protected abstract void open(List<String> endpoints, long leaseMs) throws Exception;

    /** Returns the owner's name, or null. */
    protected abstract String acquire(String lock, long waitMs, boolean read) throws Exception;

    protected abstract void release(String lock) throws Exception;

    /** Gives a held lock its whole lease again, where the contract has {@code extends}. */
    protected void extend(String lock) throws Exception {
        throw new Fail("its user cannot extend its lease");
    }

    /** Releases all held locks, and disconnects. */
    protected abstract void close() throws Exception;

    /** Tells that the lock is no longer held for certain. */
    protected final void lost(String lock, String cause) {
        long at = System.nanoTime(); // CLOCK_MONOTONIC on Linux
        say("{\"type\":\"signal\",\"client\":" + number + ",\"f\":\"lost\",\"lock\":" + quoted(lock) + ",\"at\":" + at
                + ",\"cause\":" + quoted(cause) + "}");
    }

    protected static Thread daemon(Runnable task) {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    }

    /** Serves until standard input ends. */
    public static void serve(Supplier<HarnessClient> make) throws IOException, InterruptedException {
        System.setOut(System.err);
        Map<String, HarnessClient> clients = new HashMap<>();
        List<ExecutorService> threads = new ArrayList<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String id = number(line, "id");
            String number = number(line, "client");
            String op = text(line, "op");
            if (id == null || number == null || op == null) {
                if (!line.isBlank()) {
                    System.err.println("no request: " + line);
                }
                continue;
            }
            HarnessClient client = op.equals("open") ? make.get() : clients.get(number);
            if (client == null) {
                say(reply("fail", id, ",\"error\":\"client " + number + " is not open\""));
                continue;
            }
            if (op.equals("open")) {
                client.number = number;
                clients.put(number, client);
                threads.add(client.thread);
            } else if (op.equals("close")) {
                clients.remove(number);
            }
            String request = line;
            client.thread.execute(() -> say(client.answer(id, op, request)));
        }
        for (HarnessClient client : clients.values()) {
            client.thread.execute(() -> client.answer("0", "close", ""));
        }
        for (ExecutorService thread : threads) {
            thread.shutdown();
            thread.awaitTermination(5, TimeUnit.SECONDS);
        }
    }

    private String answer(String id, String op, String request) {
        try {
            return reply("ok", id, perform(op, request));
        } catch (Fail fail) {
            return reply("fail", id, ",\"error\":" + quoted(fail.getMessage()));
        } catch (Exception unknown) {
            return reply("info", id, ",\"error\":" + quoted(unknown.toString()));
        }
    }

    /** The fields of the reply. */
    private String perform(String op, String request) throws Exception {
        switch (op) {
            case "open":
                open(texts(request, "endpoints"), Long.parseLong(number(request, "lease_ms")));
                return ",\"contract\":" + contract();
            case "acquire":
                long waitMs = Long.parseLong(number(request, "wait_ms"));
                String owner = acquire(text(request, "lock"), waitMs, "read".equals(text(request, "mode")));
                return owner == null ? "" : ",\"owner\":" + quoted(owner);
            case "release":
                release(text(request, "lock"));
                return "";
            case "extend":
                extend(text(request, "lock"));
                return "";
            case "close":
                close();
                return "";
            default:
                throw new Fail("no such operation: " + op);
        }
    }

    private static String reply(String type, String id, String fields) {
        return "{\"type\":\"" + type + "\",\"id\":" + id + fields + "}";
    }

    private static synchronized void say(String line) {
        PROTOCOL.println(line);
    }

    // Requests are flat and their texts have no escapes, so that patterns read them without a library. A missing field is null.

    private static String number(String request, String field) {
        return found(request, field, "(\\d+)\\s*[,}]");
    }

    private static String text(String request, String field) {
        return found(request, field, "\"([^\"]*)\"");
    }

    private static List<String> texts(String request, String field) {
        List<String> texts = new ArrayList<>();
        Matcher each = Pattern.compile("\"([^\"]*)\"").matcher(found(request, field, "\\[([^\\]]*)\\]"));
        while (each.find()) {
            texts.add(each.group(1));
        }
        return texts;
    }

    private static String found(String request, String field, String pattern) {
        Matcher matcher = Pattern.compile("\"" + field + "\"\\s*:\\s*" + pattern).matcher(request);
        return matcher.find() ? matcher.group(1) : null;
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char letter : String.valueOf(text).toCharArray()) {
            if (letter == '"' || letter == '\\') {
                json.append('\\').append(letter);
            } else {
                json.append(letter < ' ' ? String.format("\\u%04x", (int) letter) : letter);
            }
        }
        return json.append('"').toString();
    }
}
