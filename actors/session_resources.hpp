// What belongs to one attached process, shared by those who serve it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/unique_fd.hpp"
#include "memory/session_memory.hpp"
#include "transport/local/keeper_link.hpp"
#include "transport/local/registry.hpp"

namespace cenote {

/// Low halves of sessions' numbers from here on are of guests, which no client has: see actors/guest_room.hpp.
inline constexpr std::uint32_t first_guest_session = 0xffff'0000;

/// Low halves of the numbers of some guests' sessions.
struct guest_numbers {
  std::uint32_t first = first_guest_session;
  std::uint32_t count = 0x8000;
};
inline constexpr std::uint32_t most_device_tiers = 16;
/// Those of the way from a device's tier to DRAM; `tier`: 1 to most_device_tiers. The others are of other nodes.
[[nodiscard]] constexpr guest_numbers guest_numbers_of(std::uint32_t tier) noexcept {
  constexpr std::uint32_t each = 0x400;
  return {0xffff'8000 + tier * each, each};
}
/// Those of all devices.
inline constexpr guest_numbers numbers_of_devices{guest_numbers_of(1).first,
                                                  most_device_tiers* guest_numbers_of(1).count};

/// Immutable once the session is open, but for the shared memory itself. It lives until the last of its session actor,
/// the DRAM tier and the server lets go.
struct session_resources {
  std::uint64_t number = 0;
  std::uint64_t secret = 0;
  std::uint32_t instance = 0;
  std::uint64_t attach_call = 0;  ///< see local::attach_request
  std::string client_name;
  pid_t pid = 0;  ///< for display: see local::peer_credentials
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint32_t pin_slots = 0;
  instance_identity identity;         ///< of its instance, the whole one: identity_of()
  instance_identity shared_identity;  ///< … see cluster/agreement.hpp
  std::string instance_group;         ///< of its instance, as the spec has it
  std::chrono::system_clock::time_point attached;

  memory::segment segment;
  memory::session_memory view;
  unique_fd submit_doorbell;    ///< an eventfd that the client rings; the node only polls it
  unique_fd complete_doorbell;  ///< our end of transport/local/doorbell.hpp
  unique_fd pidfd;              ///< of its process

  /// A `doorbell` is on its way to the session's actor: a client that rings without end does not fill its mailbox.
  mutable std::atomic<bool> bell_sent{false};

  void set_phase(memory::session_phase phase) const noexcept {
    memory::shared_store(view.header().phase, static_cast<std::uint32_t>(phase), std::memory_order_release,
                         "session.phase"_point);
  }
  /// The node ends it, since so many blocks of it did not have the bytes of their sums. Wakes the client.
  void end_for(std::uint32_t wrong_blocks) const noexcept {
    memory::shared_store(view.header().wrong_blocks, wrong_blocks, std::memory_order_relaxed,
                         "session.wrong_blocks"_point);
    set_phase(memory::session_phase::wrong_sums);
    ring();
  }
  /// The client rang. True: the session's actor is to be told.
  [[nodiscard]] bool take_bell() const noexcept { return !bell_sent.exchange(true, std::memory_order_acq_rel); }
  /// By the session's actor, before it looks at the ring.
  void bell_heard() const noexcept { bell_sent.store(false, std::memory_order_seq_cst); }
  /// Wakes the client wherever it waits. Never blocks.
  void ring() const noexcept;
};

using session_ptr = std::shared_ptr<const session_resources>;

/// Makes memory and doorbells of a new session; the identity fields are the caller's to fill in before. Returns the
/// client's end of the completion doorbell, which is given to the client and kept by nobody else.
[[nodiscard]] result<unique_fd> make_session(session_resources& session);

/// So that a restarted worker finds the session.
[[nodiscard]] result<void> keep_session(local::keeper_link& keeper, const session_resources& session);
[[nodiscard]] result<std::shared_ptr<session_resources>> recover_session(local::registry_entry entry);
/// The instance that an entry's session has; 0: the entry makes no sense.
[[nodiscard]] std::uint32_t instance_of_session(const local::registry_entry& entry);

}  // namespace cenote
