/* SPDX-License-Identifier: MIT */
/* echo-netty: Netty's echo server, one loop that accepts and one that serves. The pooled allocator and
 * the water marks are its defaults. With --cert and --key it speaks TLS, by the JDK's engine. */
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler.Sharable;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.util.ResourceLeakDetector;

import java.io.File;
import java.net.InetSocketAddress;

public final class NettyEcho {
    private static final int BACKLOG = 4096; /* as weir's default */

    @Sharable
    private static final class EchoHandler extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.write(msg);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            ctx.flush();
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext ctx) {
            ctx.channel().config().setAutoRead(ctx.channel().isWritable());
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
            if (event == ChannelInputShutdownEvent.INSTANCE) /* once the last answer is sent */
                ctx.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(ChannelFutureListener.CLOSE);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            ctx.close();
        }
    }

    private static void fail(int code, String message) {
        System.err.println("echo-netty: " + message);
        System.exit(code);
    }

    private static InetSocketAddress parseAddress(String text) {
        int colon = text.lastIndexOf(':');
        try {
            return new InetSocketAddress(text.substring(0, colon),
                                         Integer.parseInt(text.substring(colon + 1)));
        } catch (RuntimeException e) {
            fail(2, "--listen: '" + text + "' is no ADDRESS:PORT");
            return null;
        }
    }

    /* null: without TLS. */
    private static SslContext openTls(String certificate, String key) {
        if (certificate == null && key == null)
            return null;
        if (certificate == null || key == null)
            fail(2, "--cert and --key are wanted together");
        try {
            return SslContextBuilder.forServer(new File(certificate), new File(key))
                .sslProvider(SslProvider.JDK)
                .protocols("TLSv1.3", "TLSv1.2")
                .build();
        } catch (Exception e) {
            fail(1, e.getMessage());
            return null;
        }
    }

    private static void serve(InetSocketAddress where, SslContext tls, EventLoopGroup boss,
                              EventLoopGroup worker, Class<? extends ServerChannel> channel)
        throws Exception {
        EchoHandler echo = new EchoHandler();
        Channel server = new ServerBootstrap()
            .group(boss, worker)
            .channel(channel)
            .option(ChannelOption.SO_BACKLOG, BACKLOG)
            .childOption(ChannelOption.TCP_NODELAY, true)
            .childOption(ChannelOption.ALLOW_HALF_CLOSURE, true)
            .childOption(ChannelOption.ALLOCATOR, PooledByteBufAllocator.DEFAULT)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel child) {
                    if (tls != null)
                        child.pipeline().addLast(tls.newHandler(child.alloc()));
                    child.pipeline().addLast(echo);
                }
            })
            .bind(where).sync().channel();
        InetSocketAddress address = (InetSocketAddress) server.localAddress();
        /* A signal would end the machine with another code than 0. */
        Runtime.getRuntime().addShutdownHook(new Thread(() -> Runtime.getRuntime().halt(0)));
        System.out.println("listening on " + address.getAddress().getHostAddress() + ":" +
                           address.getPort());
    }

    public static void main(String[] args) {
        String listen = "127.0.0.1:8007", transport = "nio", certificate = null, key = null;
        for (int i = 0; i < args.length; i += 2) {
            String name = i + 1 < args.length ? args[i] : "";
            if (name.equals("--listen"))
                listen = args[i + 1];
            else if (name.equals("--transport"))
                transport = args[i + 1];
            else if (name.equals("--cert"))
                certificate = args[i + 1];
            else if (name.equals("--key"))
                key = args[i + 1];
            else
                fail(2, "usage: echo-netty [--listen ADDRESS:PORT] [--transport nio|epoll] " +
                        "[--cert FILE --key FILE]");
        }
        InetSocketAddress where = parseAddress(listen);
        if (!transport.equals("nio") && !transport.equals("epoll"))
            fail(2, "--transport: '" + transport + "' is none of nio and epoll");
        boolean isEpoll = transport.equals("epoll");
        if (isEpoll && !Epoll.isAvailable())
            fail(2, "no native epoll transport here: " + Epoll.unavailabilityCause().getMessage());
        ResourceLeakDetector.setLevel(ResourceLeakDetector.Level.DISABLED); /* as weir's */
        SslContext tls = openTls(certificate, key);
        try {
            if (isEpoll)
                serve(where, tls, new EpollEventLoopGroup(1), new EpollEventLoopGroup(1),
                      EpollServerSocketChannel.class);
            else
                serve(where, tls, new NioEventLoopGroup(1), new NioEventLoopGroup(1),
                      NioServerSocketChannel.class);
        } catch (Exception e) { /* the groups' threads would keep the program alive */
            fail(1, e.getMessage());
        }
    }
}
