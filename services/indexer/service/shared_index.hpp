// An index on a Redis server, as the service has it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "config/node_config.hpp"
#include "core/error.hpp"
#include "services/indexer/backends/shared_facts.hpp"
#include "services/indexer/backends/shared_writer.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/service/shared_calls.hpp"

namespace cenote::indexer {

class shared_index {
 public:
  /// Connects by and by: a server that is away is no error. `keys` outlives it. Errors: invalid_config (index.url,
  /// index.auth_file), system.
  [[nodiscard]] static result<std::unique_ptr<shared_index>> open(const config::index_section& settings,
                                                                  const token_processor& keys);
  shared_index(const shared_index&) = delete;
  shared_index& operator=(const shared_index&) = delete;
  ~shared_index() = default;

  [[nodiscard]] shared_writer& writer() noexcept { return *writer_; }
  [[nodiscard]] shared_facts& facts() noexcept { return facts_; }
  [[nodiscard]] shared_index_parts parts() noexcept {
    return {.access = access_,
            .processor = keys_,
            .facts = facts_,
            .counters = counters_,
            .writer = *writer_,
            .block_tokens = block_tokens_};
  }

 private:
  shared_index(redis::server_access access, const token_processor& keys, std::uint32_t block_tokens)
      : access_(std::move(access)), keys_(keys), block_tokens_(block_tokens) {}

  const redis::server_access access_;
  const token_processor& keys_;
  const std::uint32_t block_tokens_;
  shared_facts facts_;
  shared_counters counters_;
  std::unique_ptr<shared_writer> writer_;
};

}  // namespace cenote::indexer
