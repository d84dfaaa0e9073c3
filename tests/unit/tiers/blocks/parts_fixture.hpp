// The parts of a store without the store: what its tests need of an instance, slabs and sessions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "memory/segment.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"
#include "tiers/blocks/parts.hpp"

namespace cenote::blocks::testing {

/// Blocks of 4 KiB in slabs of 256, of which the tier has room for a few.
struct bare_parts {
  explicit bare_parts(store_options with = options_of(5 << 20, 1 << 20));

  instance& add(const std::string& id = "one", const std::string& group = "");
  session& attach(instance& to, std::uint32_t uid = 0);
  /// Makes the slabs that were asked for. Returns how many.
  std::size_t pump();
  /// A blank block of the instance's only pool.
  memory::block_ref blank(instance& instance);
  /// A block that is here and in its pool's order.
  memory::block_ref present(instance& instance, std::uint64_t key);
  /// The block that a reader finds under this key; nothing when it finds none.
  [[nodiscard]] std::optional<memory::block_ref> find(const instance& instance, std::uint64_t key) const;
  [[nodiscard]] memory::block_state state_of(const instance& instance, memory::block_ref ref) const;
  /// As a client pins and unpins: in one slot of its session.
  static void pin(session& reader, memory::block_ref ref, std::uint32_t slot = 0);
  static void unpin(session& reader, std::uint32_t slot = 0);
  [[nodiscard]] static pool& pool_in(instance& instance) { return *instance.pools.front(); }
  [[nodiscard]] std::uint32_t record_of(const instance& instance, memory::block_ref ref) const;

  parts of;
  boot_time now = boot_time_of(10);

 private:
  std::vector<std::unique_ptr<memory::segment>> sessions_;
  instance_number next_instance_ = 1;
  session_number next_session_ = 1;
};

}  // namespace cenote::blocks::testing
