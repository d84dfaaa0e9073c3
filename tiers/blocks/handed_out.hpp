// Blocks in the hands of sessions: granted, reserved, or set aside until who may be writing them has stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class block_states;

/// A hand-out is a part of a block under a grant version, given to one session once. It ends when the session says so
/// (commit, finish, release), or is dead.
class handed_out {
 public:
  handed_out(state& state, accounts& payers, block_states& blocks) noexcept
      : state_(state), accounts_(payers), blocks_(blocks) {}

  /// The blank block is the session's to fill.
  void grant(session& to, pool& pool, memory::block_ref ref);
  void reserve(session& session, const memory::submission& entry, memory::block_ref ref, boot_time now,
               memory::completion& answer);
  void forget_grant(session& session, std::uint64_t ref_bits);
  bool revoke_grant(session& session, memory::block_ref ref);
  void quarantine(instance& instance, slab& home, memory::block_ref ref, std::vector<writer> writers);
  static std::uint64_t stop_writing(std::vector<writer>& writers, session_number session, std::uint64_t parts);
  std::uint64_t acknowledge(instance& instance, session_number session, std::uint64_t ref_bits, std::uint64_t parts);
  /// Of store_options::lingering, when their time is over.
  void end_lingering();
  void revoke_reservation(instance& instance, std::uint64_t ref_bits);
  void drop_writer(instance& instance, session_number session, std::uint64_t ref_bits, std::uint64_t parts);
  [[nodiscard]] static bool is_ambiguous(const instance& instance, session_number session, std::uint64_t ref_bits);
  [[nodiscard]] static std::vector<std::uint64_t> blocks_written_by(const instance& instance, session_number number);
  [[nodiscard]] static bool gave_back(const reservation& held, const session& session, const full_key& full,
                                      std::uint64_t parts);
  void join_reservation(session& session, std::uint64_t ref_bits, std::uint64_t parts, memory::completion& answer);
  std::uint32_t grant_share(const session& session, const pool& pool) const noexcept;
  /// As above, of what is handed out for later puts: idle blocks shall not fill a quota.
  std::uint32_t spare_share(const session& session, const pool& pool) const noexcept;
  /// True when a block can be granted without evicting one.
  [[nodiscard]] static bool has_blank(const pool& pool) noexcept;
  bool revoke_idle_grants(const std::function<bool(const slab&)>& predicate);

 private:
  state& state_;
  accounts& accounts_;
  block_states& blocks_;
};

}  // namespace cenote::blocks
