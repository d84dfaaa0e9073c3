// The backend on the other nodes of the cluster: a block is kept by the node that it belongs to.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/placement.hpp"
#include "cluster/pool.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "tiers/remote/backend.hpp"
#include "tiers/remote/removal_book.hpp"
#include "tiers/remote/removals.hpp"
#include "tiers/remote/steady_time.hpp"
#include "tiers/remote/turn_queue.hpp"
#include "transport/peer/block_messages.hpp"
#include "transport/redis/breaker.hpp"

namespace cenote::remote {

struct peers_options {
  std::chrono::milliseconds timeout{2000};
  std::chrono::milliseconds settle{300'000};       ///< for so long the homes of before a change are asked, too
  std::uint64_t window = std::uint64_t{64} << 20;  ///< bytes on their way from, and to, one node
  std::size_t replicas = 1;                        ///< nodes that a block belongs to: 1 or 2
};

/// The pool's half that asks others. A block belongs to the nodes that cluster::placement names, this one among them; a
/// get asks the present homes, then those of before the last change, and on the way whom a home names; a put goes to
/// all present ones, one after the other. Fetches from several nodes run side by side. What a node does not answer in
/// time opens that node's breaker and no other's. Wrong bytes are those of their block: they count against the node
/// only when blocks of `doubted_from` instances were wrong there and none was right in between.
///
/// Calls are carried out on the network's thread, where all state lives. The memory of a get is given back at once,
/// since nothing but that thread fills it; that of a put when the network has let go of it: a link that takes no bytes
/// within the time-out is closed.
class peers_backend final : public backend, public cluster::pool_half {
 public:
  /// `book`: removals and clears of earlier workers.
  peers_backend(cluster::pool& pool, peers_options options, events callbacks, removal_book book = {})
      : pool_(pool),
        options_(options),
        told_(std::move(callbacks)),
        book_(std::move(book)),
        earlier_(specs_in(book_)),
        removals_(book_, pool.removals,
                  {.lag = options.timeout,
                   .notice = told_.notice,
                   .copy_records =
                       [this] {
                         return remote::removals::records{pool_.clears(), pool_.departures.record()};
                       },
                   .next_clear = [this](const instance_identity& identity) { return begin_clear(identity); }},
                  pool.now()) {
    pool_.restore_clears(book_.clears());
    pool_.departures.restore(book_.departures());
    count_orders();
    publish_awaited();
  }

  void bind(const instance_spec& spec) override;
  [[nodiscard]] std::vector<instance_spec> earlier_instances() const override { return earlier_; }
  void unbind(instance_identity identity) override;
  void put(std::vector<item> batch) override;
  void get(std::vector<item> batch) override;
  void locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
              std::function<void(presence)> answer) override;
  /// From all nodes: any of them may have a copy. Pending while one of them is away, however long, or there is no
  /// network.
  void drop(instance_identity identity, std::vector<block_key> keys,
            std::function<void(result<std::uint64_t>)> answer) override;
  /// On all nodes; one that is away hears of it when it binds the instance again, before anything of it is served.
  void clear(instance_identity identity, std::function<void(result<void>)> answer) override;
  void clear_all(std::vector<instance_identity> identities, std::function<void(result<void>)> answer) override;
  void count_unconfirmed(instance_identity identity, std::function<void(unconfirmed_removals)> answer) override;
  [[nodiscard]] removal_figures removals() const override;
  void stop() noexcept override;
  [[nodiscard]] std::string_view name() const noexcept override { return "peers"; }

  // pool_half
  void members_changed() override;
  void heard(peer::link_id from, peer::frame_type type, std::uint64_t request,
             std::span<const std::byte> body) override;
  [[nodiscard]] peer::landing expects(peer::link_id from, const peer::piece_header& head, std::size_t bytes) override;
  void landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) override;
  void sent(peer::link_id to, std::uint64_t token, bool is_sent) override;
  void closed(peer::link_id which) override;
  [[nodiscard]] result<std::uint64_t> write_off(const std::string& name) override;
  void take_write_off(const std::string& name) override;
  void take_return(const std::string& name) override;
  void flush() override;
  void advance(steady_time now) override;

 private:
  static constexpr std::size_t most_replicas = 2;
  static constexpr std::chrono::minutes binding_lasts{10};
  static constexpr std::chrono::seconds clear_pause{10};  ///< of a returned node's clear
  static constexpr std::chrono::seconds offer_pause{2};   ///< between a change of the homes and its event

  /// The nodes that a block belongs to, then those that it belonged to before the last change. No name: none.
  struct homes {
    std::array<std::string, 2 * most_replicas> names{};
    std::size_t present = 0;
    bool is_here = false;  ///< this node is one of the present ones
    std::string sent_us;   ///< asked before the next home: the one that has named another node, or whom a request names
  };

  /// An instance as one node knows it. Given back after binding_lasts without use: there it keeps a session open, and
  /// so the instance, however long nobody has used it.
  struct binding {
    steady_time used{};
    std::uint32_t handle = 0;  ///< 0: not bound (yet)
    bool is_refused = false;
    steady_time again_at{};  ///< not bound: when it is asked again
    /// Run once it is bound, or never will be; not needed any more after that time.
    std::deque<std::pair<steady_time, std::function<void()>>> waiting{};
  };
  struct node {
    std::string name;
    peer::link_id link = 0;
    std::map<instance_identity, binding> bindings{};  ///< by identity
    turn_queue<instance_identity> to_fetch{}, to_offer{};
    std::uint64_t fetching = 0, offering = 0;  ///< bytes under way
    /// It was written off: the request by which it clears its blocks, and when that is repeated. 0: none is open.
    std::uint64_t clear_request = 0, clear_number = 0;
    steady_time clear_again{};
  };
  enum class stage : std::uint8_t {
    queued,
    asked,    ///< fetch or offer
    sending,  ///< a put's bytes are the network's
    sent,     ///< … and were sent
  };
  struct moving {
    item what;
    homes of{};
    std::size_t next = 0;        ///< of the homes, to be asked
    peer::link_id at = 0;        ///< 0: no node
    peer::link_id sends_on = 0;  ///< that has the bytes of a put
    stage now = stage::queued;
    std::uint64_t cleared = 0;     ///< put: the last clear that was carried out here when it began
    std::uint64_t own_clears = 0;  ///< put: how often this node had cleared all of its blocks by then
    std::uint64_t landed = 0;
    std::unique_ptr<running_checksum> sum{};  ///< of what landed
    steady_time begun{};
    bool was_wrong = false;
    bool was_answered = false;            ///< by some node
    bool insists = false;                 ///< nobody is to name another node any more
    bool was_stored = false;              ///< … of a put: by one of its homes
    bool may_be_stored = false;           ///< … one of them got its bytes and gave no answer
    std::optional<item_result> result{};  ///< of a put whose bytes are the network's still
  };
  struct question {
    std::vector<bool> held;
    std::size_t open = 0;
    bool is_complete = true;
    steady_time until{};
    std::function<void(presence)> answer;
  };
  /// The part of a question that one node was asked.
  struct part {
    std::uint64_t of = 0;
    peer::link_id at = 0;
    std::vector<std::uint32_t> which{};  ///< places in the question
  };
  /// A frame of a removal that a node has not answered.
  struct forget {
    peer::link_id link = 0;
    std::string node{};
    std::uint64_t removal = 0;
  };
  using moving_map = std::unordered_map<std::uint64_t, moving>;

  void enter(std::function<void()> what, const std::function<void()>& otherwise);
  void enter_early(std::function<void()> action);
  void move(std::vector<item> batch, bool up);
  void refuse_all(const std::vector<item>& batch, bool up);
  [[nodiscard]] homes homes_of(instance_identity identity, const block_key& key) const;
  /// Null: it is not here, or was written off and has not cleared its blocks yet.
  [[nodiscard]] node* find_node(const std::string& name);
  [[nodiscard]] bool is_linked(const std::string& name) const;
  [[nodiscard]] node* find_link(peer::link_id link);
  binding& bound(node& at, instance_identity identity);
  /// Runs `then` when the node has bound the instance, or refused to; perhaps not at all after `until`.
  void when_bound(node& at, instance_identity identity, steady_time until, std::function<void()> then);
  void wait_for(binding& of, steady_time until, std::function<void()> then);
  void give_back_unused(steady_time now);
  void give_back(peer::link_id to, std::uint32_t handle);

  void begin_put(item what, steady_time now);
  void begin_get(item what, steady_time now);
  void ask_next(std::uint64_t token, moving& what);
  void offer_next(moving_map::iterator which, item_result so_far);
  void queue_at(node& at, std::uint64_t token, moving& what);
  void pump(node& at);
  void pump_queue(node& at, bool up);
  void end(moving_map::iterator which, item_result how);
  void leave_node(moving& what, std::uint64_t token);
  void take_bound(node& at, instance_identity identity, std::span<const std::byte> body);
  void ask_for_check(const node& home, std::uint64_t token, const moving& fetched);
  void take_fetched(node& at, std::span<const std::byte> body);
  void take_elsewhere(node& at, std::span<const std::byte> body);
  void take_accept(node& at, std::span<const std::byte> body);
  void take_stored(node& at, std::span<const std::byte> body);
  void take_located(std::uint64_t number, std::span<const std::byte> body);
  void take_forgot(std::uint64_t number, std::span<const std::byte> body);
  void bind_again(node& at, instance_identity identity);
  void send_bytes(node& at, std::uint64_t token, moving& what);
  void end_put(moving_map::iterator which, item_result how);

  [[nodiscard]] std::map<std::string, std::vector<std::uint32_t>> by_home(const std::vector<block_name>& keys) const;
  void ask(std::vector<block_name> keys, steady_time until, std::function<void(presence)> answer);
  void send_part(node& at, std::uint64_t of, const std::vector<block_name>& keys, std::vector<std::uint32_t> which);
  void end_part(std::uint64_t number, const std::vector<bool>& held, bool is_complete);
  void end_part_of(std::uint64_t number, bool is_complete);
  void answer(std::map<std::uint64_t, question>::iterator which);
  void tell_all(instance_identity identity, std::uint64_t cleared, const std::vector<block_key>& keys,
                std::function<void(result<std::uint64_t>)> answer);
  [[nodiscard]] static std::vector<instance_spec> specs_in(const removal_book& book);
  [[nodiscard]] std::vector<std::byte> spec_of(const instance_identity& identity) const;
  void begin_removal(remote::removals::round made);
  [[nodiscard]] std::uint64_t begin_clear(const instance_identity& identity);
  void remove_hosted(std::uint64_t number);
  void send_forget(const node& home, std::uint64_t number);
  void repeat_removals(steady_time now);
  void save_removals(steady_time now);
  void note_event(const std::string& event, const std::string& field, const std::string& value) const;
  void note_members();
  void note_member(const std::string& name);
  void await_returned(const std::string& name);
  void drop_excess_nodes();
  void publish_awaited();
  void count_orders();
  [[nodiscard]] bool is_departed(const std::string& name) const;
  [[nodiscard]] bool is_excused(const std::string& name) const;
  [[nodiscard]] bool is_present(const std::string& name) const;
  void release_departed(std::set<std::string>& nodes);
  void begin_write_off(const std::string& name);
  void send_write_offs(const node& receiver, std::uint64_t request);
  void clear_returned(node& returned, steady_time now);
  void take_cleared(node& returned, std::span<const std::byte> body);
  void answer_removal(std::uint64_t number);
  void end_removal(std::uint64_t number, std::uint64_t removed, const std::string& why);
  void end_removal_of(std::uint64_t number, std::uint64_t removed, const std::string& why);
  void wake_for_next();
  void say_standing();
  void plan_offers();
  void tell_change(steady_time now);
  static constexpr std::size_t doubted_from = 4;  ///< instances
  [[nodiscard]] bool admits(const std::string& name);
  void note(const std::string& name, bool is_good);
  void note_bytes(const std::string& name, const instance_identity& identity, bool are_right);

  cluster::pool& pool_;
  const peers_options options_;
  const events told_;

  // The network's thread's own.
  std::map<instance_identity, std::vector<std::byte>> specs_;  ///< encoded, by identity
  std::deque<instance_identity> unused_;  ///< of those: kept, since they may be cleared, until there are too many
  std::vector<cluster::place> places_;
  cluster::placement homes_, homes_before_;
  steady_time settled_{};
  steady_time looks_at_bindings_{};  ///< not before
  std::map<peer::link_id, node> nodes_;
  std::map<std::string, redis::breaker> breakers_;
  std::map<std::string, std::set<instance_identity>>
      doubts_;         ///< by node: instances of wrong blocks since the last right one
  moving_map moving_;  ///< by token on the wire
  std::deque<std::pair<steady_time, std::uint64_t>> deadlines_;  ///< tokens, in the order of their ends
  std::map<std::uint64_t, question> questions_;
  std::map<std::uint64_t, part> parts_;                                         ///< by request
  std::map<std::uint64_t, std::pair<peer::link_id, instance_identity>> binds_;  ///< by request: link, identity
  std::map<std::uint64_t, forget> forgets_;                                     ///< by request
  removal_book book_;
  const std::vector<instance_spec> earlier_;  ///< that the book began with
  remote::removals removals_;
  std::uint64_t next_number_ = 1;
  std::vector<item_outcome> put_outcomes_, got_outcomes_;
  std::optional<bool> stands_;
  std::optional<steady_time> tells_at_{};  ///< that the homes changed: blocks that were refused may be offered again
  bool must_pump_ = false;                 ///< something waits for a node that was not pumped since
};

}  // namespace cenote::remote
