import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Apache Curator's locks and elections under harness: {@code CuratorLock mutex}, or another {@link Recipe}.
 * https://curator.apache.org/docs/recipes
 *
 * <p>Curator reports SUSPENDED and LOST to a listener, which its documentation strongly recommends for a lock: both become
 * {@code lost}. An election tells its leader by itself. A lock belongs to the thread that acquired it, so each client has a thread.
 */
public final class CuratorLock extends HarnessClient {
    private static final int PERMITS = 2;

    /** The recipes by their names on the command line, with their promises. */
    private enum Recipe {
        MUTEX("mutex", "\"fifo\":true,\"tries\":true,\"reentrant\":true,", true),
        READ_WRITE("read-write", "\"tries\":true,\"read\":true,", false),
        MULTI_LOCK("multi-lock", "\"tries\":true,", false),
        SEMAPHORE("semaphore", "\"tries\":true,\"permits\":" + PERMITS + ",", false),
        LEADER_LATCH("leader-latch", "", true),
        LEADER_SELECTOR("leader-selector", "\"fifo\":true,", true);

        private final String argument;
        private final String contract;
        /** Whether the first node below the path of a lock is its owner's. */
        private final boolean owned;

        Recipe(String argument, String promises, boolean owned) {
            this.argument = argument;
            this.owned = owned;
            contract = "{\"lease\":true,\"renews\":true," + promises + "\"token\":\"none\","
                    + (owned ? "\"owner\":\"server\",\"keys\":\"/harness/{lock}\"}" : "\"owner\":\"none\",\"value\":\"none\"}");
        }

        static Recipe named(String argument) {
            return Arrays.stream(values())
                    .filter(recipe -> recipe.argument.equals(argument))
                    .findFirst()
                    .orElseThrow(() -> new IllegalArgumentException("no recipe: " + argument));
        }
    }

    /** A use of a recipe by this client. */
    private abstract class Contender {
        protected final String lock;

        Contender(String lock) {
            this.lock = lock;
        }

        /** Whether it holds the lock. */
        abstract boolean acquire(long waitMs) throws Exception;

        /** Whether it holds the lock once more. */
        abstract boolean release() throws Exception;

        void disconnected(String state) {
            lost(lock, state);
        }
    }

    private final class Mutex extends Contender {
        private final InterProcessLock mutex;

        Mutex(String lock, InterProcessLock mutex) {
            super(lock);
            this.mutex = mutex;
        }

        @Override
        boolean acquire(long waitMs) throws Exception {
            return mutex.acquire(waitMs, TimeUnit.MILLISECONDS);
        }

        @Override
        boolean release() throws Exception {
            try {
                mutex.release();
            } catch (IllegalMonitorStateException error) {
                throw new Fail("not held: " + error.getMessage());
            }
            return mutex.isAcquiredInThisProcess();
        }
    }

    private final class Semaphore extends Contender {
        private Lease lease;

        Semaphore(String lock) {
            super(lock);
        }

        @Override
        boolean acquire(long waitMs) throws Exception {
            lease = new InterProcessSemaphoreV2(curator, path(lock), PERMITS).acquire(waitMs, TimeUnit.MILLISECONDS);
            return lease != null;
        }

        @Override
        boolean release() throws Exception {
            lease.close();
            return false;
        }
    }

    /** A latch serves one term: it cannot be started again. */
    private final class Latch extends Contender implements LeaderLatchListener {
        private final LeaderLatch latch;
        private volatile boolean leads;

        Latch(String lock) {
            super(lock);
            latch = new LeaderLatch(curator, path(lock));
            latch.addListener(this);
        }

        @Override
        boolean acquire(long waitMs) throws Exception {
            latch.start();
            leads = latch.await(waitMs, TimeUnit.MILLISECONDS);
            if (!leads) {
                latch.close();
            } else if (!latch.hasLeadership()) {
                notLeader(); // the listener was called before `leads` was set
            }
            return leads;
        }

        @Override
        public void isLeader() {}

        @Override
        public void notLeader() {
            if (leads) {
                lost(lock, "notLeader");
            }
        }

        @Override
        boolean release() throws IOException {
            leads = false;
            latch.close();
            requireConnection();
            return false;
        }

        @Override
        void disconnected(String state) {}
    }

    /** A selector that is not queued again serves one term: the leader leads until its callback returns. */
    private final class Selector extends Contender {
        private final CountDownLatch elected = new CountDownLatch(1);
        private final CountDownLatch resigned = new CountDownLatch(1);
        private final ExecutorService worker = Executors.newSingleThreadExecutor(HarnessClient::daemon);
        private final LeaderSelector selector;
        private boolean leads;
        private boolean interrupted;

        Selector(String lock) {
            super(lock);
            selector = new LeaderSelector(curator, path(lock), worker, new LeaderSelectorListenerAdapter() {
                @Override
                public void takeLeadership(CuratorFramework client) {
                    elected.countDown();
                    try {
                        resigned.await();
                    } catch (InterruptedException error) {
                        ended();
                    }
                }
            });
        }

        private synchronized void leads(boolean now) {
            leads = now;
            tell();
        }

        private synchronized void ended() {
            interrupted = true;
            tell();
        }

        private void tell() {
            if (leads && interrupted) {
                lost(lock, "interrupted");
            }
        }

        @Override
        boolean acquire(long waitMs) throws Exception {
            selector.start();
            if (elected.await(waitMs, TimeUnit.MILLISECONDS)) {
                leads(true);
                return true;
            }
            selector.close();
            end();
            return false;
        }

        /** Waits until the worker has removed its node. */
        private void end() throws Exception {
            resigned.countDown();
            worker.submit(() -> {}).get(10, TimeUnit.SECONDS);
            worker.shutdown();
        }

        @Override
        boolean release() throws Exception {
            leads(false);
            end();
            selector.close();
            requireConnection();
            return false;
        }

        @Override
        void disconnected(String state) {}
    }

    private final Recipe recipe;
    private final Map<String, Contender> held = new ConcurrentHashMap<>();
    private CuratorFramework curator;

    private CuratorLock(Recipe recipe) {
        this.recipe = recipe;
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        Recipe recipe = Recipe.named(arguments[0]);
        serve(() -> new CuratorLock(recipe));
    }

    @Override
    protected String contract() {
        return recipe.contract;
    }

    @Override
    protected void open(List<String> endpoints, long leaseMs) throws Exception {
        curator = CuratorFrameworkFactory.newClient(
                String.join(",", endpoints), (int) leaseMs, (int) leaseMs, new ExponentialBackoffRetry(100, 3));
        curator.getConnectionStateListenable().addListener((client, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                held.values().forEach(contender -> contender.disconnected(state.toString()));
            }
        });
        curator.start();
        if (!curator.blockUntilConnected(10, TimeUnit.SECONDS)) {
            throw new Fail("no connection");
        }
    }

    /** An election does not tell its user whether its node is removed. */
    private void requireConnection() throws IOException {
        if (!curator.getZookeeperClient().isConnected()) {
            throw new IOException("not connected");
        }
    }

    private static String path(String lock) {
        return "/harness/" + lock;
    }

    private Contender contender(String lock, boolean read) {
        switch (recipe) {
            case MUTEX:
                return new Mutex(lock, new InterProcessMutex(curator, path(lock)));
            case READ_WRITE:
                InterProcessReadWriteLock pair = new InterProcessReadWriteLock(curator, path(lock));
                return new Mutex(lock, read ? pair.readLock() : pair.writeLock());
            case MULTI_LOCK:
                return new Mutex(lock, new InterProcessMultiLock(curator, List.of(path(lock) + "/a", path(lock) + "/b")));
            case SEMAPHORE:
                return new Semaphore(lock);
            case LEADER_LATCH:
                return new Latch(lock);
            default:
                return new Selector(lock);
        }
    }

    @Override
    protected String acquire(String lock, long waitMs, boolean read) throws Exception {
        Contender held = this.held.get(lock);
        Contender contender = held == null ? contender(lock, read) : held;
        if (!contender.acquire(waitMs)) {
            throw new Fail(waitMs > 0 ? "timeout" : "busy");
        }
        this.held.put(lock, contender);
        if (!curator.getZookeeperClient().isConnected()) {
            contender.disconnected("not connected"); // the listener was called before the lock was in `held`
        }
        return recipe.owned ? "0x" + Long.toHexString(curator.getZookeeperClient().getZooKeeper().getSessionId()) : null;
    }

    @Override
    protected void release(String lock) throws Exception {
        Contender contender = held.remove(lock);
        if (contender == null) {
            throw new Fail("not held");
        }
        if (contender.release()) {
            held.put(lock, contender); // it was acquired more than once
        }
    }

    @Override
    protected void close() {
        if (curator != null) {
            curator.close();
        }
    }
}
