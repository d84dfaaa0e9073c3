#include "services/indexer/grpc/indexer_rpc.hpp"

namespace cenote::indexer {

result<std::unique_ptr<indexer_rpc>> indexer_rpc::start(rpc::rpc_server_options /*options*/, std::size_t /*threads*/,
                                                        const calls_factory& /*make_calls*/) {
  return fail(error_code::unsupported, "this build is without gRPC; right would be indexer.grpc = \"off\"");
}

}  // namespace cenote::indexer
