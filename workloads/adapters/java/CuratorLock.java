import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
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
 * {@code lost}. A lock belongs to the thread that acquired it, so each client has a thread.
 */
public final class CuratorLock extends HarnessClient {
    private static final String MUTEX = "{\"lease\":true,\"renews\":true,\"fifo\":true,\"tries\":true,\"reentrant\":true,"
            + "\"owner\":\"server\",\"token\":\"none\",\"keys\":\"/harness/{lock}\"}";
    private static final String READ_WRITE = "{\"lease\":true,\"renews\":true,\"tries\":true,\"read\":true,"
            + "\"owner\":\"none\",\"token\":\"none\",\"value\":\"none\"}";

    private final boolean readWrite;
    private final Map<String, InterProcessLock> held = new ConcurrentHashMap<>();
    private final Map<String, InterProcessLock> locks = new ConcurrentHashMap<>();
    private CuratorFramework curator;

    private CuratorLock(boolean readWrite) {
        this.readWrite = readWrite;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        boolean readWrite = arguments.length > 0 && arguments[0].equals("read-write");
        serve(() -> new CuratorLock(readWrite));
    }

    @Override
    protected String contract() {
        return readWrite ? READ_WRITE : MUTEX;
    }

    @Override
    protected void open(List<String> endpoints, long leaseMs) throws Exception {
        curator = CuratorFrameworkFactory.newClient(
                String.join(",", endpoints), (int) leaseMs, (int) leaseMs, new ExponentialBackoffRetry(100, 3));
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

    @Override
    protected String acquire(String lock, long waitMs, boolean read) throws Exception {
        InterProcessLock contender = locks.computeIfAbsent(lock + (read ? "/read" : ""), name -> make(lock, read));
        if (!contender.acquire(waitMs, TimeUnit.MILLISECONDS)) {
            throw new Fail(waitMs > 0 ? "timeout" : "busy");
        }
        held.put(lock, contender);
        if (!curator.getZookeeperClient().isConnected()) {
            lost(lock, "not connected"); // the listener was called before the lock was in `held`
        }
        return readWrite ? null : "0x" + Long.toHexString(curator.getZookeeperClient().getZooKeeper().getSessionId());
    }

    private InterProcessLock make(String lock, boolean read) {
        String path = "/harness/" + lock;
        if (!readWrite) {
            return new InterProcessMutex(curator, path);
        }
        InterProcessReadWriteLock pair = new InterProcessReadWriteLock(curator, path);
        return read ? pair.readLock() : pair.writeLock();
    }

    @Override
    protected void release(String lock) throws Exception {
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

    @Override
    protected void close() {
        if (curator != null) {
            curator.close();
        }
    }
}
