#include "commands/bench/support.hpp"

namespace cenote::bench::manager_bench {

result<void> run(const options& /*options*/, report& /*out*/) {
  return fail(error_code::unsupported, "this build is without gRPC, which the manager needs");
}

}  // namespace cenote::bench::manager_bench
