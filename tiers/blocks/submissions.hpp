// Batches of a session's ring entries, carried out one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class allocator;
class block_states;
class clears;
class handed_out;
class kept_blocks;
class lower_edges;
class prefetch_requests;
class request_chains;
class sum_checks;
class transfer_table;

/// Carries a batch on from its cursor, within a budget of work.
class submissions {
 public:
  submissions(state& state, accounts& payers, transfer_table& transfers, block_states& blocks, handed_out& handed_out,
              allocator& allocator, kept_blocks& kept, lower_edges& edges, request_chains& chains, clears& clears,
              prefetch_requests& prefetching, sum_checks& checks) noexcept
      : state_(state),
        accounts_(payers),
        transfers_(transfers),
        blocks_(blocks),
        handed_out_(handed_out),
        allocator_(allocator),
        kept_(kept),
        edges_(edges),
        chains_(chains),
        clears_(clears),
        prefetching_(prefetching),
        checks_(checks) {}

  /// Carries the batch on. finished: all entries took effect or were refused, `completions` has the answers. A step is
  /// a block that is looked at; a batch that takes more than `budget` of them goes on with the next call.
  progress run(batch& work, boot_time now, std::uint64_t budget = no_budget);
  /// Gives up waiting for memory: the entry that waits is refused with no_space, the rest goes on.
  void give_up(batch& work);

 private:
  bool grant_one(session& to, pool& pool, allocation& outcome, std::uint32_t more, boot_time now);
  static void drop_unfinished(session& session);
  [[nodiscard]] static bool makes_sense(const session& session, const memory::submission& entry) noexcept;
  progress run_entry(batch& work, session& session, const memory::submission& entry, boot_time now);
  progress run_clear(batch& work, session& session, boot_time now);
  progress run_grant(batch& work, session& session, const memory::submission& entry, boot_time now);
  [[nodiscard]] std::optional<std::uint64_t> replayed(const session& session, const slab* home, memory::block_ref ref,
                                                      const memory::submission& entry) const noexcept;
  void run_commit(batch& work, session& session, const memory::submission& entry, boot_time now);
  progress run_reserve(batch& work, session& session, const memory::submission& entry, boot_time now);
  allocation open_reservation(batch& work, session& session, const memory::submission& entry, boot_time now,
                              memory::completion& answer);
  void run_finish(batch& work, session& session, const memory::submission& entry, boot_time now);
  void refuse_finish(batch& work, session& session, const memory::submission& entry, slab* home);
  void run_release(batch& work, session& session, const memory::submission& entry);
  void remove_one(batch& work, instance& of, const block_key& key, std::optional<memory::block_ref> here,
                  std::vector<memory::block_ref>& into);
  void run_removals(batch& work, session& session, boot_time now);
  void run_keep(batch& work, session& session, const memory::submission& entry, boot_time now);
  void run_check(batch& work, session& session, const memory::submission& entry, boot_time now);
  static void refuse_next(batch& work, error_code code);

  state& state_;
  accounts& accounts_;
  transfer_table& transfers_;
  block_states& blocks_;
  handed_out& handed_out_;
  allocator& allocator_;
  kept_blocks& kept_;
  lower_edges& edges_;
  request_chains& chains_;
  clears& clears_;
  prefetch_requests& prefetching_;
  sum_checks& checks_;
};

}  // namespace cenote::blocks
