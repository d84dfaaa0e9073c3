// The actor that owns the DRAM tier.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/health.hpp"
#include "actors/messages.hpp"
#include "actors/promise_guard.hpp"
#include "actors/removal_tally.hpp"
#include "tiers/blocks/store.hpp"

namespace cenote {

/// Which of a node's block tiers it is.
struct block_tier_role {
  bool is_on_device = false;
  /// Tiers above that have blocks of an earlier worker and will say `hear_removals`: until all have, a removal is not
  /// answered (for so long as any other that waits).
  std::uint32_t awaited_listeners = 0;
};

/// Owns a blocks::store and serves batches of every session's submissions. A batch that needs memory which is still
/// being made waits here, with a deadline; one that takes more than a millisecond or two goes on in turns, between
/// which the others are served; everything else is answered in the message's own turn.
///
///   run       batch -> the same batch, carried out            (sessions)
///   open_instance   found, or made by the maker of instances, of which it makes one at a time  (server)
///   open, release, reattach, disconnect                       (server, node: sessions)
///   handles   descriptors of slabs for a client               (server)
///   slab      a slab was made, failed or given up             (provisioner)
///   report, clear, corrupt, reload, evict, turn               (node, itself)
///   hand_on, last_writes   what is here goes to other nodes, or to a tier below   (server, worker)
///   tick                                                      (the data path, every tick_interval)
///   transfers_done, copies_lost, drained, cleared             (the tiers below)
///   changes                                                   (the publisher)
///   register_planner, command                                 (the planner of prefetches)
class dram_tier final : public dram_tier_actor::base {
 public:
  static constexpr std::chrono::milliseconds tick_interval{200};

  /// How the tier asks for memory: never blocks.
  using request_slabs = std::function<void(std::vector<blocks::slab_request>)>;

  /// Takes news of requests that are followed; never blocks.
  using tell_news = std::function<void(std::vector<handover::news>)>;

  /// Takes requests of instances that are watched; never blocks.
  using tell_watched = std::function<void(std::vector<blocks::watched_request>)>;

  /// `recovered`: sessions that the store knows already, after a restart.
  dram_tier(caf::actor_config& config, std::shared_ptr<blocks::store> store, std::vector<session_ptr> recovered,
            request_slabs request, std::vector<lower_tier> below = {}, std::shared_ptr<health> alive = {},
            instance_maker_actor maker = {}, tell_news tells = {}, block_tier_role role = {},
            tell_watched watches = {});

  [[nodiscard]] const char* name() const override { return "dram_tier"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  struct waiting_batch {
    batch_ptr work;
    promise_guard<batch_ptr> promise;
    boot_time deadline{};  ///< of its wait for memory; 0: it has not waited
    caf::strong_actor_ptr from;
  };
  class removal_answers;
  /// A removal, until all tiers above have come.
  struct unheard {
    removals_ptr what;
    std::shared_ptr<removal_answers> all;  ///< null: it was answered without them
    boot_time until{};
  };
  enum class hearers : std::uint8_t {
    all,         ///< tiers below and listeners
    on_machine,  ///< … but tiers outside this machine only end what is on its way there
    below,       ///< … and what is above is to stay
  };
  struct clear_under_way {
    std::vector<blocks::clear_work> left;
    std::vector<blocks::removal> removals;
    std::uint64_t cleared = 0;
    promise_guard<outcome> promise;
    hearers scope = hearers::all;
  };

  struct handing_under_way {
    boot_time until{};
    std::optional<promise_guard<outcome>> promise{};  ///< none: blocks are offered again, and no answer is due
    bool has_more = false;                            ///< to do at once
    std::optional<caf::timespan> last{};              ///< the node stops behind it: its time, 0: no time
  };

  struct wanted_instance {
    instance_request_ptr request;
    promise_guard<opened_instance_ptr> promise;
  };

  caf::result<opened_instance_ptr> open_instance(const instance_request_ptr& request);
  /// An answer: it is here, or cannot be. Null: it has to be made.
  [[nodiscard]] opened_instance_ptr find_instance(const instance_request& request);
  void make_next_instance();
  void take_instance(new_instance& made);
  void deliver_bound(opened_instance_ptr answer, promise_guard<opened_instance_ptr> promise);
  [[nodiscard]] opened_instance_ptr add_instance(const instance_request& request, new_instance& made);
  [[nodiscard]] opened_instance_ptr describe(blocks::instance_number number) const;

  caf::result<batch_ptr> serve(const batch_ptr& work);
  outcome open_session(const session_ptr& session);
  outcome release_session(std::uint64_t number);
  void take_slab(blocks::slab_outcome& made);
  slab_handles_ptr handles(std::uint32_t instance, const index_list& indices) const;
  [[nodiscard]] slab_places_ptr places(std::uint32_t instance, const index_list& indices) const;
  [[nodiscard]] blocks::store_status status() const;
  caf::result<outcome> clear(const std::string& id);
  caf::result<outcome> clear_node();
  caf::result<outcome> corrupt();
  caf::result<outcome> hand_on(caf::timespan limit);
  caf::result<outcome> write_last(caf::timespan limit);
  void catch_up(blocks::edge_number edge);
  void continue_handing_on();
  [[nodiscard]] static outcome answer_of(const handing_under_way& work, const blocks::handed_on& counts, bool is_late);
  caf::result<outcome> forget_named(const std::string& id);
  /// `answer`, when the tiers below have carried the removals out.
  void forget_below(std::vector<blocks::removal> removals, const outcome& answer, promise_guard<outcome> promise,
                    hearers scope = hearers::all);
  /// Has them forget. `finish` hears what failed, of one of them, or how many blocks went.
  void ask_to_forget(std::vector<blocks::removal> removals, std::function<void(const outcome&)> finish,
                     hearers whom = hearers::all);
  [[nodiscard]] bool is_heard() const noexcept { return !below_.empty() || !listeners_.empty() || awaited_ > 0; }
  void tell_listeners(const removals_ptr& what, const std::shared_ptr<removal_answers>& all);
  void tell(const removal_listener& listener, const removals_ptr& what, const std::shared_ptr<removal_answers>& all);
  outcome add_listener(const removal_listener& listener, bool is_awaited);
  void answer_unheard();
  void forget_all_later();
  [[nodiscard]] const char* log_name() const noexcept { return is_on_device_ ? "gpu" : "dram"; }
  void continue_clear();
  void continue_checks();
  void end_wrong_sessions();
  void reload(const config::node_config& config);
  void tick();
  void forget_expired();
  caf::result<outcome> take_removed(const std::vector<blocks::removal>& removals);
  caf::result<outcome> clear_on_machine(const index_list& instances);
  void tell_given_up();
  outcome make_room(std::uint32_t owner);

  /// After each change: load, evict ahead, ask for memory, send blocks on their way.
  void flush_outbox();
  void pass_on_watched(std::uint64_t least);
  void send_below();
  void retry_waiting();
  /// The next session's batch, and the next part of a clear.
  void take_turn();
  void carry_on(waiting_batch batch);
  void ask_for_turn();
  void conclude(batch_ptr work, promise_guard<batch_ptr> promise);
  void end_removals(blocks::batch& work, const outcome& answer);
  void note_answers(const outcome& answer, std::uint64_t requests);
  void bind_instances();
  void end_binding(blocks::instance_number number);
  /// Passes on what the batch of actor `session`, which just ran, asks of prefetches.
  void tell_planner(const caf::strong_actor_ptr& session);
  void execute(const std::vector<prefetch::command>& commands);

  std::shared_ptr<blocks::store> store_;
  request_slabs request_;
  std::unordered_map<std::uint64_t, session_ptr> sessions_;  ///< keeps their memory mapped while the store scans it
  std::deque<waiting_batch> waiting_;                        ///< for memory
  std::deque<waiting_batch> turns_;                          ///< have more to do, one a session: served in turn
  std::deque<clear_under_way> clears_;
  std::optional<handing_under_way> handing_;
  std::deque<wanted_instance> wanted_;  ///< the first one is being made
  using bound_later = std::pair<promise_guard<opened_instance_ptr>, opened_instance_ptr>;
  /// Instances whose hints are not yet in their indices, and who waits for them.
  std::unordered_map<blocks::instance_number, std::vector<bound_later>> binding_;
  instance_maker_actor maker_;
  removal_tally tally_;
  std::uint64_t wrong_blocks_ = 0;  ///< that were dropped: not each has a line in the log
  bool turning_ = false;
  bool evicting_ = false;
  histogram batch_times_;                    ///< nanoseconds
  std::vector<lower_tier> below_;            ///< by edge
  std::vector<removal_listener> listeners_;  ///< tiers above
  std::uint32_t awaited_ = 0;                ///< … that are still to come
  std::vector<unheard> unheard_;             ///< removals that those have to hear of
  bool is_on_device_ = false;
  std::shared_ptr<health> alive_;                    ///< null: nobody asks
  prefetch_actor planner_;                           ///< null until it registered
  std::vector<prefetch_batch_ptr> unsent_requests_;  ///< until then
  bool planner_waits_ = false;                       ///< for space
  tell_news tells_;                                  ///< none: nobody follows anything
  tell_watched watches_;                             ///< none: nothing is watched
};

}  // namespace cenote
