// Recovery: a new worker takes over the blocks of the one before, and derives everything from the block records.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/huge_vector.hpp"
#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class block_states;
class eviction_order;
class handed_out;
class instance_table;
class session_table;
class slab_space;
class transfer_table;

/// Takes over instances, slabs and sessions, and rebuilds the rest.
class recovery {
 public:
  recovery(state& state, accounts& payers, transfer_table& transfers, eviction_order& order, block_states& blocks,
           handed_out& handed_out, slab_space& space, instance_table& table, session_table& attached) noexcept
      : state_(state),
        accounts_(payers),
        transfers_(transfers),
        order_(order),
        blocks_(blocks),
        handed_out_(handed_out),
        space_(space),
        table_(table),
        attached_(attached) {}

  result<void> recover_instance(instance_number number, const instance_spec& spec, memory::shared_file index,
                                memory::version_table versions, std::uint32_t owner = 0);
  /// Slabs of instances that are unknown, or retired ones, are refused; the caller drops them.
  result<void> recover_slab(const slab_description& what, memory::slab_mapping memory);
  result<void> recover_session(session_number number, instance_number instance, memory::session_memory memory,
                               std::uint32_t uid = 0);
  /// After all recover_ calls: derives everything from the records. Returns the number of blocks that are served again.
  std::uint64_t rebuild(boot_time now);

 private:
  static std::vector<writer> writers_in_mask(const instance& instance, std::uint64_t mask, std::uint64_t parts);
  using order_entry = std::pair<boot_time, std::uint32_t>;  ///< last use, record
  void recover_block(instance& instance, slab& home, memory::block_ref ref, huge_vector<order_entry>& order,
                     std::vector<std::uint8_t>& indexed, std::uint64_t& served);
  std::uint64_t recover_pool(instance& owner, pool& group, std::vector<std::uint8_t>& indexed, boot_time now);
  void recover_grants(instance& instance, slab& home, memory::block_ref ref);
  [[nodiscard]] huge_vector<std::uint64_t> summarise(const instance& instance, std::size_t records) const;
  void populate(const slab& home) const noexcept;
  void reconcile_index(instance& instance, std::vector<std::uint8_t>& indexed);

  state& state_;
  accounts& accounts_;
  transfer_table& transfers_;
  eviction_order& order_;
  block_states& blocks_;
  handed_out& handed_out_;
  slab_space& space_;
  instance_table& table_;
  session_table& attached_;
};

}  // namespace cenote::blocks
