// A session of the block tier that belongs to no process: what those have who use its blocks inside a node.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "memory/block_record.hpp"
#include "memory/index.hpp"
#include "memory/lookup.hpp"
#include "memory/pin_slots.hpp"
#include "memory/session_memory.hpp"
#include "memory/version_table.hpp"

namespace cenote::cluster {

/// A session of the block tier, with what its reads need. Stays where it is.
struct guest_session {
  guest_session(memory::index_memory its_index, memory::version_table its_versions, memory::session_memory view);

  std::uint64_t number = 0;
  std::uint32_t instance = 0;
  std::shared_ptr<const void> keeps{};  ///< the memory behind `view`
  memory::index_memory index;
  memory::version_table versions;
  memory::pin_slots slots;
  memory::lookup lookup;
};
using guest_session_ptr = std::shared_ptr<guest_session>;

/// What a guest asks of the block tier. No call waits; each `then` is called once, on the guest's thread, unless that
/// has ended.
class guest_room {
 public:
  template <class... Answer>
  using then = std::function<void(Answer...)>;

  guest_room() = default;
  guest_room(const guest_room&) = delete;
  guest_room& operator=(const guest_room&) = delete;
  virtual ~guest_room() = default;

  /// Opens the instance, and makes it if there is none. Errors: those of an attach.
  virtual void open(const instance_spec& spec, then<result<guest_session_ptr>> done) = 0;
  virtual void close(std::uint64_t session) = 0;
  /// What it has reserved is set aside for good, and others may store those keys; what it has pinned stays.
  virtual void disconnect(std::uint64_t session) = 0;
  /// Carries submissions out: tiers below hear of removals, tiers outside this machine do not. `late`: the completions
  /// are those that come when the request is over, not when it was read.
  virtual void run(std::uint64_t session, std::vector<memory::submission> entries, bool late,
                   then<std::vector<memory::completion>> done) = 0;
  virtual void find_slabs(std::uint32_t instance, std::vector<std::uint32_t> which,
                          then<std::vector<memory::slab_place>> done) = 0;
  /// Clears all instances on this machine, those among them that no session uses; tiers outside it keep what they have.
  virtual void clear_node(then<result<std::uint64_t>> done) = 0;
};

}  // namespace cenote::cluster
