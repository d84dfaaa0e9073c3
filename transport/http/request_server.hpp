// The HTTP server of a service: requests with bodies, many on a connection, over TCP, TLS and Unix sockets.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "transport/http/listening_sockets.hpp"
#include "transport/http/request_handler.hpp"
#include "transport/http/request_stream.hpp"

namespace cenote::http {

/// PEM files. Without a certificate there is no TLS.
struct tls_files {
  std::string certificate{};  ///< of the server, and those that sign it
  std::string key{};
  std::string client_ca{};  ///< clients need a certificate that one of these signed; empty: none is asked for
};

struct request_server_limits {
  request_limits requests{};
  std::size_t buffers = std::size_t{256} << 20U;  ///< bytes that all requests beyond their first 32 KiB may take
  std::size_t connections = 1024;                 ///< with more, those that are idle longest are closed
  std::chrono::milliseconds request{15'000};      ///< from a request's first byte, or the connection, to its last
  std::chrono::milliseconds answer{15'000};       ///< for each 4 MiB of an answer, begun ones as well
  std::chrono::milliseconds idle{75'000};         ///< between two requests
  std::chrono::milliseconds linger{1'000};        ///< for a client to take the last answer before the connection ends
  std::chrono::milliseconds stop{4'000};          ///< for the requests that are under way when it stops
};

struct request_server_options {
  std::vector<endpoint> addresses{};    ///< TCP, with TLS if there is a certificate
  std::vector<unix_address> sockets{};  ///< never with TLS
  std::string token{};  ///< `Authorization: Bearer` has to have it, at all addresses; empty: none is asked
  std::vector<std::string> open_paths{};  ///< which are answered without the token: probes
  tls_files tls{};
  std::size_t threads = 2;
  request_server_limits limits{};
};

/// Counters since the begin; connections: at present.
struct request_server_figures {
  std::uint64_t connections = 0;
  std::uint64_t accepted = 0;
  std::uint64_t refused = 0;            ///< connections that found no room
  std::uint64_t displaced = 0;          ///< connections that were closed to make room
  std::uint64_t expired = 0;            ///< connections that ended at a deadline, but for idle ones
  std::uint64_t failed_handshakes = 0;  ///< of TLS
  std::uint64_t succeeded = 0;          ///< answers by the class of their status: 2xx and 3xx,
  std::uint64_t client_errors = 0;      ///< 4xx,
  std::uint64_t server_errors = 0;      ///< 5xx
  std::uint64_t bytes_in = 0;           ///< of HTTP, without TLS
  std::uint64_t bytes_out = 0;
};

using handler_factory = std::function<std::unique_ptr<request_handler>()>;

/// Answers HTTP/1.1 with keep-alive and pipelining. Each connection belongs to one of its threads, and its requests are
/// handled there: no other thread takes part in an answer. A client that sends or reads slowly delays no other.
/// Thread-safe, but for serve() and stop().
class request_server {
 public:
  /// Takes all addresses, and answers no request yet. Errors: invalid_argument (nothing to listen at, a certificate or
  /// key that cannot be used), limit_exceeded (another program listens at a Unix socket), system.
  [[nodiscard]] static result<std::unique_ptr<request_server>> bind(request_server_options options);
  request_server(const request_server&) = delete;
  request_server& operator=(const request_server&) = delete;
  ~request_server();

  /// Answers from now on; to be called once. `make_handler` is called here, once for each thread.
  void serve(const handler_factory& make_handler);
  /// The TCP addresses, with the ports that were free for port 0.
  [[nodiscard]] const std::vector<endpoint>& addresses() const noexcept { return options_.addresses; }
  [[nodiscard]] request_server_figures figures() const noexcept;

  /// Answers what was asked, takes no more, and ends the threads: within the limit `stop`, and the handler under way.
  void stop() noexcept;

 private:
  class service_thread;
  class shared_parts;
  class connection_state;

  request_server(request_server_options options, std::unique_ptr<shared_parts> parts);

  request_server_options options_;
  std::unique_ptr<shared_parts> parts_;
  std::vector<std::unique_ptr<service_thread>> threads_;
};

}  // namespace cenote::http
