// What belongs to one attached process, shared by those who serve it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "memory/session_memory.hpp"
#include "transport/local/keeper_link.hpp"
#include "transport/local/registry.hpp"

namespace cenote {

/// Immutable once the session is open, but for the shared memory itself. It lives until the last of its session actor,
/// the DRAM tier and the server lets go.
struct session_resources {
  std::uint64_t number = 0;
  std::uint64_t secret = 0;
  std::uint32_t instance = 0;
  std::string client_name;
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
  std::uint32_t pin_slots = 0;
  std::chrono::system_clock::time_point attached;

  memory::segment segment;
  memory::session_memory view;
  unique_fd submit_doorbell;    ///< the client rings it
  unique_fd complete_doorbell;  ///< we ring it
  unique_fd pidfd;

  void set_phase(memory::session_phase phase) const noexcept {
    view.header().phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
  }
  /// Wakes the client wherever it waits.
  void ring() const noexcept;
};

using session_ptr = std::shared_ptr<const session_resources>;

/// Makes memory and doorbells of a new session; the identity fields are the caller's to fill in before.
[[nodiscard]] result<void> make_session(session_resources& session);

/// So that a restarted worker finds the session.
[[nodiscard]] result<void> keep_session(local::keeper_link& keeper, const session_resources& session);
[[nodiscard]] result<std::shared_ptr<session_resources>> recover_session(local::registry_entry entry);

}  // namespace cenote
