/* SPDX-License-Identifier: MIT */
/* The work of bench/peers/work.h on one NioEventLoop: a line says what to do, the answer is the
 * nanoseconds it took. */
import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.EventLoop;
import io.netty.channel.embedded.EmbeddedChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import io.netty.util.ReferenceCountUtil;
import io.netty.util.ResourceLeakDetector;
import io.netty.util.concurrent.DefaultThreadFactory;
import io.netty.util.concurrent.ScheduledFuture;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

public final class NettyPeer {
    private static final long WARM_NS = 4_000_000_000L;
    private static final int GIVE_BACK = 64;
    private static final int CHANGES = 65536;
    private static final int LEAST_FAR_MS = 100_000, END_FAR_MS = 1_100_000;
    private static final int LEAST_NEAR_NS = 0, END_NEAR_NS = 1_000_000;

    /* Threads' names are how netty.c finds those it pins. */
    private static final NioEventLoopGroup group =
        new NioEventLoopGroup(1, new DefaultThreadFactory("loop"));
    private static final EventLoop loop = group.next();
    private static final ThreadMXBean threads = ManagementFactory.getThreadMXBean();

    public static void main(String[] args) {
        ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.DISABLED); /* as weir's */
        new Thread(NettyPeer::control, "control").start();
    }

    private static void control() {
        try {
            obey();
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void obey() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] words = line.split(" ");
            int size = Integer.parseInt(words[2]);
            long count = Long.parseLong(words[3]);
            int window = Integer.parseInt(words[4]);
            boolean isWarm = words[0].equals("warm");
            System.out.println(isWarm ? warm(words[1], size, window)
                                      : run(words[1], size, count, window));
        }
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
    }

    /* Until the compiler has had its say: rounds as long as those that are measured. */
    private static long warm(String what, int size, int window) throws Exception {
        long count = what.startsWith("schedule_") ? 1 : what.equals("length_field") ? 1000 : 200_000;
        long start = System.nanoTime();
        while (System.nanoTime() - start < WARM_NS)
            run(what, size, count, window);
        return System.nanoTime() - start;
    }

    private static long run(String what, int size, long count, int window) throws Exception {
        switch (what) {
        case "tasks":
            return runTasks(size, count, window);
        case "schedule_cancel":
            return onLoop(new ScheduleCancel(size, count));
        case "reschedule":
            return onLoop(new Reschedule(size, count));
        case "schedule_fire":
            return onLoop(new ScheduleFire(size, count));
        case "read":
            return onLoop(new Read(size, count));
        case "length_field":
            return onLoop(new LengthField(count));
        default:
            throw new IllegalArgumentException(what);
        }
    }

    /* Tasks -------------------------------------------------------------------------------- */

    private static final class Flow {
        final CountDownLatch ready, begin = new CountDownLatch(1), done = new CountDownLatch(1);
        long left; /* the loop's */

        Flow(int producers, long count) {
            ready = new CountDownLatch(producers);
            left = producers * count;
        }
    }

    /* A producer, and the one task that it hands over again and again: Netty's queue has
     * references, so that the same object may be in it many times. */
    private static final class Source extends Thread {
        private final Flow flow;
        private final long count;
        private final int window;
        private final AtomicLong returned = new AtomicLong(); /* by the loop */
        private final Runnable job = new Runnable() {
            private long ran; /* the loop's */

            @Override
            public void run() {
                if (++ran % GIVE_BACK == 0)
                    returned.lazySet(ran);
                if (--flow.left == 0)
                    flow.done.countDown();
            }
        };

        Source(Flow flow, long count, int window) {
            this.flow = flow;
            this.count = count;
            this.window = window;
        }

        private long waitForRoom(long sent) {
            int turns = 0;
            long seen;
            while (sent - (seen = returned.get()) == window) {
                if (++turns % 64 == 0)
                    Thread.yield();
                else
                    Thread.onSpinWait();
            }
            return seen;
        }

        @Override
        public void run() {
            long seen = 0;
            flow.ready.countDown();
            try {
                flow.begin.await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            for (long sent = 0; sent < count; sent++) {
                if (sent - seen == window)
                    seen = waitForRoom(sent);
                loop.execute(job);
            }
        }
    }

    private static long runTasks(int producers, long count, int window) throws Exception {
        Flow flow = new Flow(producers, count);
        Source[] sources = new Source[producers];
        for (int i = 0; i < producers; i++) {
            sources[i] = new Source(flow, count, window);
            sources[i].start();
        }
        flow.ready.await();
        long start = System.nanoTime();
        flow.begin.countDown();
        flow.done.await();
        long taken = System.nanoTime() - start;
        for (Source source : sources)
            source.join();
        return taken;
    }

    /* Timers ------------------------------------------------------------------------------- */

    /* Runs on the loop's thread, and tells what that had of a CPU. The collector's threads are not
     * in it, though they work for this one. */
    private abstract static class Work implements Runnable {
        final CountDownLatch done = new CountDownLatch(1);
        long startNs, takenNs;

        void start() {
            startNs = threads.getCurrentThreadCpuTime();
        }

        void stop() {
            takenNs = threads.getCurrentThreadCpuTime() - startNs;
            done.countDown();
        }
    }

    private static long onLoop(Work work) throws Exception {
        loop.execute(work);
        work.done.await();
        return work.takenNs;
    }

    /* The same as work_numbers. */
    private static int[] numbers(int count, int least, int end) {
        long random = 88172645463325252L;
        int[] numbers = new int[count];
        for (int i = 0; i < count; i++) {
            random ^= random << 13;
            random ^= random >>> 7;
            random ^= random << 17;
            numbers[i] = least + (int) ((random >>> 33) % (end - least));
        }
        return numbers;
    }

    private static final Runnable NOTHING = () -> {
    };

    private static final class ScheduleCancel extends Work {
        private final long count;
        private final int[] delaysMs;
        private final ScheduledFuture<?>[] timers;

        ScheduleCancel(int size, long count) {
            this.count = count;
            delaysMs = numbers(size, LEAST_FAR_MS, END_FAR_MS);
            timers = new ScheduledFuture<?>[size];
        }

        @Override
        public void run() {
            start();
            for (long i = 0; i < count; i++)
                scheduleAndCancel();
            stop();
        }

        private void scheduleAndCancel() {
            for (int i = 0; i < timers.length; i++)
                timers[i] = loop.schedule(NOTHING, delaysMs[i], TimeUnit.MILLISECONDS);
            for (ScheduledFuture<?> timer : timers)
                timer.cancel(false);
        }
    }

    private static final class Reschedule extends Work {
        private final long count;
        private final int[] delaysMs, picks;
        private final ScheduledFuture<?>[] timers;

        Reschedule(int size, long count) {
            this.count = count;
            delaysMs = numbers(Math.max(CHANGES, size), LEAST_FAR_MS, END_FAR_MS);
            picks = numbers(CHANGES, 0, size);
            timers = new ScheduledFuture<?>[size];
        }

        @Override
        public void run() {
            for (int i = 0; i < timers.length; i++)
                timers[i] = loop.schedule(NOTHING, delaysMs[i], TimeUnit.MILLISECONDS);
            start();
            for (long i = 0; i < count; i++)
                change((int) (i % CHANGES));
            stop();
            for (ScheduledFuture<?> timer : timers)
                timer.cancel(false);
        }

        /* Netty has no cheaper way. */
        private void change(int nth) {
            timers[picks[nth]].cancel(false);
            timers[picks[nth]] = loop.schedule(NOTHING, delaysMs[nth], TimeUnit.MILLISECONDS);
        }
    }

    private static final class ScheduleFire extends Work {
        private final int[] delaysNs;
        private long roundsLeft;
        private int firesLeft;
        private final Runnable fire = this::countFire;

        ScheduleFire(int size, long count) {
            roundsLeft = count;
            delaysNs = numbers(size, LEAST_NEAR_NS, END_NEAR_NS);
        }

        @Override
        public void run() {
            start();
            scheduleAll();
        }

        private void scheduleAll() {
            firesLeft = delaysNs.length;
            for (int delayNs : delaysNs)
                loop.schedule(fire, delayNs, TimeUnit.NANOSECONDS);
        }

        private void countFire() {
            if (--firesLeft > 0)
                return;
            if (--roundsLeft > 0)
                scheduleAll();
            else
                stop();
        }
    }

    /* Pipelines ---------------------------------------------------------------------------- */

    private static final Object MESSAGE = new Object(); /* nothing is counted */

    /* Different ones, as those of hops.h. */
    private static final class Pass0 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass1 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass2 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass3 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass4 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass5 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass6 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static final class Pass7 extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.fireChannelRead(msg);
        }
    }

    private static ChannelInboundHandlerAdapter[] passing() {
        return new ChannelInboundHandlerAdapter[] {
            new Pass0(), new Pass1(), new Pass2(), new Pass3(),
            new Pass4(), new Pass5(), new Pass6(), new Pass7(),
        };
    }

    private static final class Take extends ChannelInboundHandlerAdapter {
        long taken;

        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            taken++;
        }
    }

    private static final class Read extends Work {
        private final EmbeddedChannel channel = new EmbeddedChannel();
        private final Take last = new Take();
        private final long count;

        Read(int handlers, long count) {
            this.count = count;
            for (int i = 0; i < handlers; i++)
                channel.pipeline().addLast(passing()[i]);
            channel.pipeline().addLast(last);
        }

        @Override
        public void run() {
            ChannelPipeline pipeline = channel.pipeline();
            start();
            for (long i = 0; i < count; i++)
                pipeline.fireChannelRead(MESSAGE);
            stop();
            if (last.taken != count)
                throw new IllegalStateException("messages were lost");
            channel.close();
        }
    }

    /* Decoders ----------------------------------------------------------------------------- */

    private static final class TakeFrame extends ChannelInboundHandlerAdapter {
        long taken;

        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            taken++;
            ReferenceCountUtil.release(msg);
        }
    }

    /* As bench_codec.c: frames of 64 bytes with their lengths in reads of 16 KiB. */
    private static final class LengthField extends Work {
        private static final int READ_BYTES = 16384, FRAME_BYTES = 64;
        private final EmbeddedChannel channel = new EmbeddedChannel();
        private final TakeFrame last = new TakeFrame();
        private final ByteBuf read = PooledByteBufAllocator.DEFAULT.directBuffer(READ_BYTES);
        private final long count;

        LengthField(long count) {
            this.count = count;
            for (int i = 0; i < READ_BYTES / FRAME_BYTES; i++) {
                read.writeInt(FRAME_BYTES - 4);
                read.writeZero(FRAME_BYTES - 4);
            }
            channel.pipeline().addLast(new LengthFieldBasedFrameDecoder(1024, 0, 4, 0, 4));
            channel.pipeline().addLast(last);
        }

        @Override
        public void run() {
            ChannelPipeline pipeline = channel.pipeline();
            start();
            for (long i = 0; i < count; i++)
                pipeline.fireChannelRead(read.retainedDuplicate());
            stop();
            if (last.taken != count * (READ_BYTES / FRAME_BYTES))
                throw new IllegalStateException("frames were lost");
            channel.close();
            read.release();
        }
    }
}
