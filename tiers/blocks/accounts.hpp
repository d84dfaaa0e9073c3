// Who pays for blocks: instance groups, users, and what sessions hold blank.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

/// Accounts of instance groups and of users within them: what each may use, keep and hold blank, and what it does.
class accounts {
 public:
  explicit accounts(state& state) noexcept : state_(state) {}

  account& open_account(const instance_spec& spec, std::uint32_t owner);
  void configure(account& payer) const;
  /// Of a group that the configuration names.
  void set_quota(const std::string& group, std::uint64_t bytes);
  [[nodiscard]] std::vector<account*> all_accounts() const;
  static void move_account(instance& instance, account& to);
  user& user_of(std::uint32_t uid);
  [[nodiscard]] std::size_t sessions_of(std::uint32_t uid) const noexcept;
  void forget_user(user& gone);
  [[nodiscard]] std::uint64_t blank_limit(std::uint64_t stride) const noexcept;
  [[nodiscard]] bool may_reserve(const session& session, const pool& pool) const noexcept;
  /// Blocks more that a user, and of those one of the user's instance groups, may hold blank beside all others.
  struct blank_room {
    std::uint64_t user = 0;
    std::uint64_t group = 0;
  };
  [[nodiscard]] blank_room room_for_blank(const session& session, std::uint64_t stride) const noexcept;
  /// The session's blank blocks are its user's and its instance group's from now on.
  static void join(session& session, user& owner);
  static void leave(session& session);
  void hold_blank(session& session, std::uint64_t stride) noexcept;
  void let_blank(session& session, std::uint64_t stride) noexcept;
  void charge_reservation(session& session, instance& instance, memory::block_ref ref, std::uint64_t stride);
  void discharge_reservation(instance& instance, memory::block_ref ref, std::uint64_t stride);
  [[nodiscard]] bool may_keep(const account& payer, std::uint64_t stride) const noexcept;
  void note_kept(pool& group, std::uint32_t record);
  [[nodiscard]] bool keeps(const pool& group, std::uint32_t record) const;
  void forget_account(account& payer);
  /// The block is not kept any more.
  void note_kept_no_more(pool& group, std::uint32_t record);
  /// Accounts that neither the configuration names nor an instance uses.
  void drop_unused();
  [[nodiscard]] const std::map<std::string, std::unique_ptr<account>>& all() const noexcept { return accounts_; }
  [[nodiscard]] std::uint64_t kept_bytes() const noexcept { return kept_bytes_; }

 private:
  [[nodiscard]] const std::string& account_name(const instance_spec& spec) const;

  state& state_;
  std::map<std::string, std::unique_ptr<account>> accounts_;
  std::map<std::uint32_t, std::unique_ptr<user>> users_;  ///< by uid
  std::uint64_t kept_bytes_ = 0;                          ///< of all accounts
  std::uint64_t blank_bytes_ = 0;                         ///< that sessions hold blank, or held and are set aside
};

}  // namespace cenote::blocks
