// The instances that there are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class eviction_order;
class slab_space;

/// Finds, makes and describes instances.
class instance_table {
 public:
  instance_table(state& state, accounts& payers, eviction_order& order, slab_space& space) noexcept
      : state_(state), accounts_(payers), order_(order), space_(space) {}

  /// The number of the instance with this spec; nothing when it is new. `spec_mismatch` names the differing field, if
  /// `owner` (a uid) uses the id in this instance group for another spec.
  [[nodiscard]] result<std::optional<instance_number>> find_instance(const instance_spec& spec,
                                                                     std::uint32_t owner = 0) const;
  /// Refuses a spec with blocks that do not fit into a slab of this tier, or of which none could stay below the high
  /// water mark.
  [[nodiscard]] result<void> check_fits(const instance_spec& spec) const;
  instance& make_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                          memory::version_table versions, std::uint32_t owner);
  /// Adds an empty instance, claimed for the client that is about to attach to it.
  result<void> add_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                            memory::version_table versions, boot_time now = boot_time_of(0), std::uint32_t owner = 0);
  /// Before the tiers below are told of the instance.
  void set_share(instance_number number, std::shared_ptr<const instance_share> share);
  /// What a client maps: read-only descriptors of index and versions. Nothing for unknown instances.
  [[nodiscard]] std::optional<std::pair<unique_fd, unique_fd>> descriptors(instance_number number) const;
  /// Nothing when the slab is gone.
  [[nodiscard]] std::optional<memory::slab_place> slab_place_of(instance_number number, std::uint32_t index) const;
  /// A second descriptor of a slab, and its segment's size in bytes. Nothing when the slab is gone.
  [[nodiscard]] std::optional<std::pair<unique_fd, std::uint64_t>> slab_descriptor(instance_number number,
                                                                                   std::uint32_t index) const;
  /// A client is about to attach to it: it is not given up for the next few seconds.
  void claim_instance(instance_number number, boot_time now) noexcept;
  void begin_idle(instance& instance, boot_time now) noexcept;
  [[nodiscard]] std::uint32_t made_by(std::uint32_t owner) const noexcept;
  /// Instances that were added since the last call, for the tier below.
  [[nodiscard]] std::vector<instance_binding> take_bindings();
  /// Removes an instance that is blank and has no session.
  void erase(instance_number number);
  [[nodiscard]] std::vector<instance_number> take_given_up() { return std::exchange(given_up_, {}); }

 private:
  void set_watch(pool& group);
  [[nodiscard]] const instance* same_spec(const instance_spec& spec) const;

  state& state_;
  accounts& accounts_;
  eviction_order& order_;
  slab_space& space_;
  std::vector<instance_number> unbound_;
  std::vector<instance_number> given_up_;
  std::unordered_map<std::uint32_t, std::uint32_t> made_by_;  ///< uid -> instances that there are
};

}  // namespace cenote::blocks
