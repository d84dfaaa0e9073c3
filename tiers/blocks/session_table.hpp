// The sessions that there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class block_states;
class handed_out;
class instance_table;
class pin_looks;
class prefetch_holds;

/// Adds sessions, and takes back what those held that went.
class session_table {
 public:
  session_table(state& state, accounts& payers, prefetch_holds& held, pin_looks& looks, block_states& blocks,
                handed_out& handed_out, instance_table& table) noexcept
      : state_(state),
        accounts_(payers),
        holds_(held),
        pins_(looks),
        blocks_(blocks),
        handed_out_(handed_out),
        table_(table) {}

  /// `uid`: the client's user, whose sessions share what one user may hold.
  result<void> add_session(session_number number, instance_number instance, memory::session_memory memory,
                           std::uint32_t uid = 0);
  /// The client is dead, or said that it is done: everything of it is free.
  void release_session(session_number number, boot_time now);
  /// The client's socket closed, it may be alive: takes back what it is not writing, frees its keys.
  void disconnect_session(session_number number, boot_time now);
  /// The node ends it: its batches are refused from now on. What the client is not writing goes back; its pins hold.
  void end_session(session_number number, boot_time now);
  /// The client is back. `held`: what it may still be writing of what earlier workers handed out; nothing: it did not
  /// know yet all that they did.
  result<void> reattach_session(session_number number, std::optional<std::span<const held_parts>> held);
  /// Recovered sessions whose batches several workers died of: nothing of theirs is carried out any more, and their
  /// memory stays theirs until release_session().
  [[nodiscard]] std::vector<session_number> suspects() const;
  static void note_oldest_pin(session& session, boot_time now) noexcept;

 private:
  state& state_;
  accounts& accounts_;
  prefetch_holds& holds_;
  pin_looks& pins_;
  block_states& blocks_;
  handed_out& handed_out_;
  instance_table& table_;
  std::unordered_set<std::uint32_t> short_numbers_;  ///< of sessions, as block records call them
};

}  // namespace cenote::blocks
