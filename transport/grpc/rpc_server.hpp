// The gRPC server of a service.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "transport/grpc/call_handler.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::rpc {

struct rpc_server_limits {
  std::size_t message = std::size_t{16} << 20U;   ///< bytes of a request
  std::size_t buffers = std::size_t{256} << 20U;  ///< bytes at which gRPC begins to end calls and connections
  std::size_t connections = 256;                  ///< with more, new ones are closed
  std::size_t calls = 1024;                       ///< under way on all connections; others are resource_exhausted
  int streams = 128;                              ///< calls under way on a connection; others wait at the client
  std::chrono::milliseconds handshake{15'000};    ///< of TLS and HTTP/2
  std::chrono::milliseconds request{15'000};      ///< for a request's message
  std::chrono::milliseconds answer{15'000};       ///< for the client to take a message
  std::chrono::milliseconds idle{75'000};         ///< of a connection without calls
  std::chrono::milliseconds age{3'600'000};       ///< of a connection; its calls end first
  std::chrono::milliseconds stop{3'000};          ///< for calls that are under way when it stops
};

struct rpc_server_options {
  std::vector<endpoint> addresses{};  ///< TCP, with TLS if there is a certificate
  std::string token{};                ///< `authorization: Bearer` has to have it; empty: none is asked
  http::tls_files tls{};
  rpc_server_limits limits{};
};

/// Answers calls on gRPC's threads. A call without the token, or of an unknown method, ends before its request is read.
class rpc_server {
 public:
  /// Answers from now on; `handler` outlives it. Errors: invalid_argument (a certificate or key that cannot be used),
  /// system (an address is taken).
  [[nodiscard]] static result<std::unique_ptr<rpc_server>> start(rpc_server_options options, call_handler& handler);
  rpc_server(const rpc_server&) = delete;
  rpc_server& operator=(const rpc_server&) = delete;
  ~rpc_server();

  /// The addresses, with the ports that were free for port 0.
  [[nodiscard]] const std::vector<endpoint>& addresses() const noexcept { return options_.addresses; }
  /// Takes no more calls, and ends: within the limit `stop`, and the handler under way.
  void stop() noexcept;

 private:
  class running_server;

  explicit rpc_server(rpc_server_options options);

  rpc_server_options options_;
  std::unique_ptr<running_server> server_;
};

}  // namespace cenote::rpc
