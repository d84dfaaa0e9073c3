// The indexer's gRPC interface.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/endpoint.hpp"
#include "core/error.hpp"
#include "services/indexer/http/indexer_calls.hpp"
#include "transport/grpc/rpc_server.hpp"

namespace cenote::indexer {

/// Answers the calls of `indexer.proto`.
class indexer_rpc {
 public:
  using calls_factory = std::function<result<std::unique_ptr<indexer_calls>>()>;

  /// Answers from now on, `threads` questions at once. Errors: those of rpc_server::start();
  /// unsupported: this build is without gRPC.
  [[nodiscard]] static result<std::unique_ptr<indexer_rpc>> start(rpc::rpc_server_options options, std::size_t threads,
                                                                  const calls_factory& make_calls);
  indexer_rpc() = default;
  indexer_rpc(const indexer_rpc&) = delete;
  indexer_rpc& operator=(const indexer_rpc&) = delete;
  virtual ~indexer_rpc() = default;

  /// The addresses, with the ports that were free for port 0.
  [[nodiscard]] virtual const std::vector<endpoint>& addresses() const noexcept = 0;
  /// Ends all streams, answers what was asked, and ends within 5 s.
  virtual void stop() noexcept = 0;
};

}  // namespace cenote::indexer
