import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderCallbacks;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElectionConfigBuilder;
import io.fabric8.kubernetes.client.extended.leaderelection.LeaderElector;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaderElectionRecord;
import io.fabric8.kubernetes.client.extended.leaderelection.resourcelock.LeaseLock;
import java.io.IOException;
import java.net.Socket;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * fabric8's LeaderElector on a Lease under harness: https://github.com/fabric8io/kubernetes-client/blob/main/doc/CHEATSHEET.md
 *
 * <p>An acquire campaigns until this candidate leads or its time is over; a release cancels the election, which gives the Lease back
 * ({@code withReleaseOnCancel}); the elector logs a write that failed and calls {@code onStopLeading} as after one that did not,
 * so the lock is asked whether the Lease was given back. {@code lost} is raised by {@code onStopLeading}. Each term has a name of its
 * own, as that of an operator that starts again.
 */
public final class Fabric8Election extends HarnessClient {
    /** A Lease that knows whether the last write that was answered took the holder's name out of it. */
    private static final class WatchedLease extends LeaseLock {
        private volatile boolean givenBack;

        WatchedLease(String lock, String identity) {
            super("default", lock, identity);
        }

        @Override
        public synchronized void update(KubernetesClient client, LeaderElectionRecord record) {
            super.update(client, record);
            String holder = record.getHolderIdentity();
            givenBack = holder == null || holder.isEmpty();
        }
    }

    /** A campaign, and the term that it leads to. */
    private final class Term {
        private final String lock;
        private final String identity = UUID.randomUUID().toString();
        private final WatchedLease lease;
        private final CountDownLatch leads = new CountDownLatch(1);
        private final CountDownLatch ended = new CountDownLatch(1);
        private volatile boolean cancelled;
        private volatile boolean lost;
        private CompletableFuture<?> election;

        Term(String lock) {
            this.lock = lock;
            lease = new WatchedLease(lock, identity);
        }

        void start() {
            LeaderElector elector = kubernetes.leaderElector()
                    .withConfig(new LeaderElectionConfigBuilder()
                            .withName(lock)
                            .withLeaseDuration(Duration.ofSeconds(seconds))
                            .withRenewDeadline(Duration.ofMillis(seconds * 2000 / 3))
                            .withRetryPeriod(Duration.ofMillis(seconds * 2000 / 15))
                            .withLock(lease)
                            .withReleaseOnCancel(true)
                            .withLeaderCallbacks(new LeaderCallbacks(leads::countDown, this::stopped, leader -> {}))
                            .build())
                    .build();
            election = elector.start();
            election.whenComplete((done, failure) -> ended.countDown());
        }

        void stopped() {
            if (!cancelled) {
                lost = true;
                lost(lock, "onStopLeading");
            }
        }

        /** Whether the election has ended. */
        boolean cancel() throws InterruptedException {
            cancelled = true;
            election.cancel(true);
            return ended.await(2 * seconds, TimeUnit.SECONDS);
        }
    }

    private final Map<String, Term> held = new ConcurrentHashMap<>();
    private KubernetesClient kubernetes;
    private long seconds;

    public static void main(String[] arguments) throws IOException, InterruptedException {
        serve(Fabric8Election::new);
    }

    @Override
    protected String contract() {
        return "{\"lease\":true,\"renews\":true,\"fifo\":false,\"tries\":false,\"wakes\":\"polls\",\"owner\":\"server\","
                + "\"token\":\"none\",\"wall_clock\":true}";
    }

    @Override
    protected void open(List<String> endpoints, long leaseMs) throws Exception {
        seconds = Math.max(1, (leaseMs + 999) / 1000);
        // the library asks again and again where nothing listens
        String[] address = endpoints.get(0).split(":");
        new Socket(address[0], Integer.parseInt(address[1])).close();
        kubernetes = new KubernetesClientBuilder()
                .withConfig(new ConfigBuilder()
                        .withAutoConfigure(false)
                        .withMasterUrl("http://" + endpoints.get(0) + "/")
                        .withNamespace("default")
                        .build())
                .build();
        kubernetes.getKubernetesVersion();
    }

    @Override
    protected String acquire(String lock, long waitMs, boolean read) throws Exception {
        Term term = new Term(lock);
        term.start();
        if (term.leads.await(waitMs, TimeUnit.MILLISECONDS)) {
            held.put(lock, term);
            return term.identity;
        }
        // a request that is under way may make this candidate the leader; its name in the Lease then runs out
        term.cancel();
        throw new IllegalStateException("the election was cancelled while it asked");
    }

    @Override
    protected void release(String lock) throws Exception {
        Term term = held.remove(lock);
        if (term == null) {
            throw new Fail("not held");
        }
        boolean ended = term.cancel();
        if (term.lease.givenBack) {
            return;
        }
        if (term.lost) {
            throw new Fail("not held");
        }
        // the write may have failed, or its reply may be lost
        throw new IllegalStateException(ended ? "the Lease was not given back" : "the election does not end");
    }

    @Override
    protected void close() throws Exception {
        for (Term term : held.values()) {
            term.cancel();
        }
        if (kubernetes != null) {
            kubernetes.close();
        }
    }
}
