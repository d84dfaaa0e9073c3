#include "tiers/nvme/make_engine.hpp"

#include <utility>

#include "tiers/nvme/thread_engine.hpp"
#include "tiers/nvme/uring_engine.hpp"

namespace cenote::nvme {

result<std::unique_ptr<io_engine>> make_engine(engine_kind kind, const path_file& file, const engine_options& options,
                                               io_engine::callback done) {
  if (kind != engine_kind::threads) {
    auto ring = uring_engine::create(file, options, done);
    if (ring) return std::unique_ptr<io_engine>(std::move(*ring));
    if (kind == engine_kind::io_uring) return std::unexpected(ring.error());
    if (options.on_refusal) options.on_refusal(ring.error());
  }
  auto threads = thread_engine::create(file, options, std::move(done));
  if (!threads) return std::unexpected(threads.error());
  return std::unique_ptr<io_engine>(std::move(*threads));
}

}  // namespace cenote::nvme
