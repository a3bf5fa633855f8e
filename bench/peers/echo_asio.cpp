// SPDX-License-Identifier: MIT
// echo-asio: standalone asio, sessions that keep themselves alive as in its own example.
#include "peers/listening.h"

#include <array>
#include <asio.hpp>
#include <cstdio>
#include <exception>
#include <memory>

using asio::ip::tcp;

class session : public std::enable_shared_from_this<session>
{
  public:
    explicit session(tcp::socket socket) : socket_(std::move(socket))
    {
    }

    void read()
    {
        socket_.async_read_some(asio::buffer(data_),
                                [self = shared_from_this()](std::error_code error, size_t length) {
                                    if (!error)
                                        self->write(length);
                                });
    }

  private:
    void write(size_t length)
    {
        asio::async_write(socket_, asio::buffer(data_, length),
                          [self = shared_from_this()](std::error_code error, size_t) {
                              if (!error)
                                  self->read();
                          });
    }

    tcp::socket socket_;
    // The example's 1 KiB would take sixteen reads for the largest message that is measured.
    std::array<char, 16 * 1024> data_;
};

static void accept(tcp::acceptor &acceptor)
{
    acceptor.async_accept([&acceptor](std::error_code error, tcp::socket socket) {
        if (!error)
            std::make_shared<session>(std::move(socket))->read();
        accept(acceptor);
    });
}

int main(int argc, char **argv)
{
    try {
        int fd = listening_open(argc, argv);
        asio::io_context context(1); // the hint that one thread runs it
        tcp::acceptor acceptor(context, tcp::v4(), fd);
        accept(acceptor);
        listening_announce(fd);
        context.run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "asio: %s\n", error.what());
        return 1;
    }
}
