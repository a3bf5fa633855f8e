/* SPDX-License-Identifier: MIT */
/* Netty's SslHandler, with the JDK's engine, on either side:
 *
 *     TlsPeer serve CERTIFICATE KEY PROTOCOL           echoes, until it is killed
 *     TlsPeer connect PORT CA PROTOCOL COUNT BYTES     connects one after the other, and compares what comes back
 */
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.ssl.SslCloseCompletionEvent;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslHandshakeCompletionEvent;
import io.netty.handler.ssl.SslProvider;

import java.io.File;
import java.net.InetSocketAddress;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSession;

public final class TlsPeer {
    /* Through the engine: Debian's Netty knows no ALPN of the JDK's. */
    private static SslHandler setUp(SslHandler tls, boolean isClient) {
        SSLParameters parameters = tls.engine().getSSLParameters();
        parameters.setApplicationProtocols(new String[] { "weir/1", "weir/2" });
        if (isClient)
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
        tls.engine().setSSLParameters(parameters);
        return tls;
    }

    private static void tell(ChannelHandlerContext ctx, Object event) {
        if (event instanceof SslHandshakeCompletionEvent) {
            SslHandler tls = ctx.pipeline().get(SslHandler.class);
            SSLSession session = tls.engine().getSession();
            SslHandshakeCompletionEvent done = (SslHandshakeCompletionEvent) event;
            System.out.println(done.isSuccess()
                                   ? "session " + session.getProtocol() + " " + session.getCipherSuite() +
                                         " alpn=" + tls.engine().getApplicationProtocol() + " created=" +
                                         session.getCreationTime()
                                   : "failed " + done.cause());
        } else if (event instanceof SslCloseCompletionEvent) {
            System.out.println(((SslCloseCompletionEvent) event).isSuccess() ? "close_notify" : "truncated");
        }
    }

    private static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            ctx.write(msg);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext ctx) {
            ctx.flush();
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
            tell(ctx, event);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            System.out.println("error " + cause);
            ctx.close();
        }
    }

    private static final class Client extends ChannelInboundHandlerAdapter {
        private final ByteBuf sent, got = Unpooled.buffer();

        Client(int bytes) {
            sent = Unpooled.buffer(bytes);
            for (int i = 0; i < bytes; i++)
                sent.writeByte(i * 7 + i / 251);
        }

        @Override
        public void channelActive(ChannelHandlerContext ctx) {
            ctx.writeAndFlush(sent.copy());
        }

        @Override
        public void channelRead(ChannelHandlerContext ctx, Object msg) {
            got.writeBytes((ByteBuf) msg);
            ((ByteBuf) msg).release();
            if (got.readableBytes() < sent.readableBytes())
                return;
            System.out.println(got.equals(sent) ? "echoed" : "other bytes");
            ctx.close();
        }

        @Override
        public void userEventTriggered(ChannelHandlerContext ctx, Object event) {
            tell(ctx, event);
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext ctx, Throwable cause) {
            System.out.println("error " + cause);
            ctx.close();
        }
    }

    private static void serve(String[] args) throws Exception {
        SslContext context = SslContextBuilder.forServer(new File(args[1]), new File(args[2]))
                                 .sslProvider(SslProvider.JDK)
                                 .protocols(args[3])
                                 .build();
        NioEventLoopGroup group = new NioEventLoopGroup(1);
        Channel server = new ServerBootstrap()
            .group(group)
            .channel(NioServerSocketChannel.class)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel child) {
                    child.pipeline().addLast(setUp(context.newHandler(child.alloc()), false), new Echo());
                }
            })
            .bind(new InetSocketAddress("127.0.0.1", 0)).sync().channel();
        System.out.println("listening on 127.0.0.1:" + ((InetSocketAddress) server.localAddress()).getPort());
    }

    private static void connect(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]), bytes = Integer.parseInt(args[5]);
        SslContext context = SslContextBuilder.forClient()
                                 .sslProvider(SslProvider.JDK)
                                 .trustManager(new File(args[2]))
                                 .protocols(args[3])
                                 .build();
        NioEventLoopGroup group = new NioEventLoopGroup(1);
        for (int i = 0; i < Integer.parseInt(args[4]); i++)
            new Bootstrap()
                .group(group)
                .channel(NioSocketChannel.class)
                .handler(new ChannelInitializer<SocketChannel>() {
                    @Override
                    protected void initChannel(SocketChannel channel) {
                        SslHandler tls = context.newHandler(channel.alloc(), "localhost", port);
                        tls.setCloseNotifyReadTimeoutMillis(30000); /* by default it waits for none */
                        channel.pipeline().addLast(setUp(tls, true), new Client(bytes));
                    }
                })
                .connect("127.0.0.1", port).sync().channel().closeFuture().sync();
        group.shutdownGracefully(0, 1, java.util.concurrent.TimeUnit.SECONDS);
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("serve"))
            serve(args);
        else
            connect(args);
    }
}
