// Who is there: a plain state machine that is told of links, frames and the time, and says what to do.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "cluster/counters.hpp"
#include "core/endpoint.hpp"
#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "transport/peer/handshake.hpp"
#include "transport/peer/messages.hpp"
#include "transport/peer/network.hpp"

namespace cenote::cluster {

using steady_time = std::chrono::steady_clock::time_point;

/// What a node knows of another one, from its greeting.
struct identity {
  std::string name{};
  std::string version{};
  endpoint where{};
  endpoint blocks_at{};
  peer::incarnation born{};
  std::uint64_t weight = 0;
  std::uint64_t features = 0;

  /// Of a node that has left: no block of it is missed, or none is left.
  [[nodiscard]] bool has_drained() const noexcept { return weight == 0 || (features & peer::volatile_blocks) != 0; }
};

/// Rules that a test leaves out one by one, to show that each is needed.
struct membership_rules {
  bool subtracts_lateness = true;   ///< own lateness is nobody's silence
  bool closes_silent_links = true;  ///< after gone_after
  bool keeps_one_link = true;       ///< of two between a pair
  bool tells_views = true;          ///< nodes hear of others by others
  bool greets_in_time = true;       ///< links that do not greet are closed
  bool refuses_taken_names = true;
};

struct membership_options {
  std::string cluster{};
  peer::secret shared{};
  std::vector<endpoint> seeds{};                 ///< as numbers
  std::vector<endpoint> names{};                 ///< each stands for all addresses that the name service has of it
  std::chrono::milliseconds beat{200};           ///< between two beats on a link
  std::chrono::milliseconds suspect_after{800};  ///< without a frame
  std::chrono::milliseconds gone_after{4000};    ///< without a frame: the link is closed
  std::chrono::milliseconds greet_within{2000};  ///< from the dial to the last proof
  std::chrono::milliseconds first_pause{100};    ///< before a dial is repeated; doubles …
  std::chrono::milliseconds longest_pause{5000};
  std::chrono::minutes forget_after{60};  ///< of nodes that are gone, seeds excepted
  std::uint64_t jitter_seed = 1;          ///< of the pauses
  membership_rules rules{};
};

enum class peer_state : std::uint8_t {
  dialling,  ///< a link was asked for, or will be
  greeting,  ///< it is open, and the two sides have not proved who they are
  live,
  suspect,  ///< the link is open and silent
  gone,     ///< was live; its link closed
  refused,  ///< one of the two does not want the other
  left,     ///< said that it stops
};
CENOTE_ENUM_NAMES(peer_state, dialling, greeting, live, suspect, gone, refused, left);

// What is to be done. Sayings are to be carried out in their order.
struct lookup_saying {
  endpoint name;  ///< answered by membership::take_addresses()
};
struct dial_saying {
  endpoint where;  ///< answered by membership::dialling()
};
struct frame_saying {
  peer::link_id to = 0;
  std::vector<std::byte> frame;
};
struct close_saying {
  peer::link_id which = 0;
  error why;
};
struct join_saying {
  peer::link_id which = 0;
  endpoint where;
  peer::ticket proof{};
};
struct await_saying {
  peer::link_id which = 0;
  peer::ticket proof{};
};
using saying = std::variant<lookup_saying, dial_saying, frame_saying, close_saying, join_saying, await_saying>;

/// What an operator wants to hear of.
struct news {
  enum class kind : std::uint8_t { joined, suspected, recovered, gone, left, refused, name_taken };
  kind what{};
  std::string name;  ///< empty: it did not say
  endpoint where;
  std::string why{};
  bool is_fatal = false;  ///< name_taken: this node was never let in
};

/// The nodes that can be used now, by name, this one among them.
struct view {
  std::uint64_t epoch = 0;  ///< grows with each change; of this node alone
  std::uint64_t hash = 0;   ///< of names and incarnations: equal for two nodes that see the same
  std::vector<identity> live{};
};

/// A row of `cenote peers`.
struct peer_row {
  identity who;  ///< without a name: only where it was dialled is known
  peer_state state{};
  steady_time since{};
  std::chrono::nanoseconds round_trip{0};  ///< the least of the last beats; 0: not known
  peer::link_id link = 0;
  std::string why{};  ///< of the last failure
};

/// A frame that is not about who is there, of a node that is.
struct other_frame {
  std::string from;
  peer::link_id link = 0;
  peer::frame_view frame;
};

/// Not thread-safe, never waits, and knows no clock: the time is an argument and never goes back.
///
/// Everybody dials the seeds, the addresses behind names, and the nodes that live nodes name in their views. Names are
/// looked up again and again: pods come back with other addresses, and two halves that formed apart find each other.
/// Silence is measured by the own clock;
/// what the own alarm came late by (the whole process or machine stood still) is not counted as anybody's silence.
class membership {
 public:
  membership(identity self, membership_options options, steady_time now);

  /// The answer to a lookup_saying.
  void take_addresses(const endpoint& name, const result<std::vector<endpoint>>& addresses, steady_time now);
  /// The answer to a dial_saying.
  void dialling(const endpoint& where, peer::link_id link);
  void opened(peer::link_id link, bool is_dialled, steady_time now);
  /// A frame of this object's own types is used up; any other one is handed back.
  [[nodiscard]] std::optional<other_frame> heard(peer::link_id from, std::span<const std::byte> bytes, steady_time now);
  void closed(peer::link_id link, const error& why, steady_time now);
  /// What this node holds beside others, from now on: says so to all.
  void set_weight(std::uint64_t weight);
  /// This node stops: says so to all.
  void leave(steady_time now);
  void advance(steady_time now);

  [[nodiscard]] std::vector<saying> take_sayings();
  [[nodiscard]] std::vector<news> take_news();
  /// When advance() has something to do.
  [[nodiscard]] steady_time wake_at() const noexcept { return promised_; }

  [[nodiscard]] view current() const;
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  /// Grows with each change of a node's state, link or weight.
  [[nodiscard]] std::uint64_t revision() const noexcept { return revision_; }
  [[nodiscard]] std::vector<peer_row> peers() const;
  /// Who is at the other end, as far as it said; empty: not known.
  [[nodiscard]] std::string name_on(peer::link_id link) const;
  /// Of a node that is live or suspect.
  [[nodiscard]] std::optional<peer::link_id> link_of(const std::string& name) const;
  /// A number known to the two ends of a link alone; zeros before their greeting.
  [[nodiscard]] peer::ticket key_of(peer::link_id link) const;
  [[nodiscard]] std::optional<peer::incarnation> incarnation_of(const std::string& name) const;
  [[nodiscard]] const identity& self() const noexcept { return self_; }
  [[nodiscard]] const std::string& cluster_id() const noexcept { return options_.cluster; }
  [[nodiscard]] const membership_counters& counters() const noexcept { return counters_; }

 private:
  using milliseconds = std::chrono::milliseconds;
  using nanoseconds = std::chrono::nanoseconds;

  enum class stage : std::uint8_t { opening, awaits_challenge, awaits_hello, awaits_welcome, awaits_beat, greeted };
  struct link_record {
    peer::link_id id = 0;
    bool is_dialled = false;
    stage at = stage::opening;
    steady_time begun{};
    std::string contact;                  ///< dialled: the address, a key of contacts_
    std::vector<std::byte> own_greeting;  ///< as it was sent
    std::uint64_t told_weight = 0;        ///< in it, or since
    peer::nonce once{};                   ///< in it
    identity who;                         ///< of the other side, once it has greeted
    peer::agreement agreed;
    std::optional<steady_time> close_at;  ///< it is a spare one, or was refused
    std::int64_t last_sent_ns = 0;        ///< in the other side's last beat
    steady_time last_beat{};
    bool is_closing = false;
  };
  /// An address that is dialled while nobody that is live stands behind it.
  struct contact_record {
    endpoint where;
    bool is_seed = false;
    bool is_self = false;
    std::string seed_name{};  ///< by which it is a seed, while the name stands for it
    std::string name{};       ///< who was there the last time
    peer::link_id link = 0;
    bool is_dialled = false;  ///< dialling() is awaited, or a link is there
    milliseconds pause{0};
    steady_time next{};
    steady_time since{};
    bool was_refused = false;
    std::string why{};
  };
  /// A name behind which there are addresses.
  struct name_record {
    endpoint place;
    bool is_asked = false;  ///< take_addresses() is awaited
    bool is_known = false;  ///< the last answer had addresses
    steady_time next{};
    steady_time begin{};
    std::string reason{};  ///< of the last answer without addresses
  };
  struct member_record {
    identity who;
    peer_state state = peer_state::gone;
    steady_time since{};
    peer::link_id link = 0;
    steady_time heard_at{};
    nanoseconds excused_then{0};  ///< excused_ when it was heard
    nanoseconds round_trip{0};
    std::uint64_t view_hash = 0;
    std::uint64_t view_sent = 0;  ///< the epoch of the view that it was sent last
    std::string why{};
  };

  void note_time(steady_time now);
  void finish(steady_time now);
  [[nodiscard]] nanoseconds silence_of(const member_record& of, steady_time now) const;

  void add_contact(const endpoint& where, const std::string& name, bool is_seed, steady_time now);
  void dial_due(steady_time now);
  void look_up_due(steady_time now);
  void take_seeds(const std::string& name, const std::vector<endpoint>& addresses, steady_time now);
  [[nodiscard]] bool is_wanted(const contact_record& of) const;
  void put_off(contact_record& which, steady_time now);
  [[nodiscard]] milliseconds jittered(milliseconds pause);
  void forget_old(steady_time now);

  [[nodiscard]] peer::greeting greeting_with(const peer::nonce& once) const;
  void send(peer::link_id to, peer::frame_type type, std::span<const std::byte> body);
  void close(link_record& which, const error& why);
  void refuse(link_record& which, peer::refusal why, const std::string& text);
  std::optional<other_frame> take_bytes(link_record& link, std::span<const std::byte> bytes, steady_time now);
  void end_link(const link_record& gone, const error& why, steady_time now);
  void greet_or_close(link_record& from, const peer::frame_view& frame, steady_time now);
  result<void> take_hello(link_record& from, const peer::frame_view& frame);
  result<void> take_challenge(link_record& from, const peer::frame_view& frame);
  result<void> take_welcome(link_record& from, const peer::frame_view& frame, steady_time now);
  result<void> take_first_beat(link_record& from, const peer::frame_view& frame, steady_time now);
  result<void> take_refusal(link_record& from, const peer::frame_view& frame, steady_time now);
  void note_refusal(const link_record& of, const std::string& why);
  [[nodiscard]] std::string why_not_proved(const peer::greeting& other) const;

  bool takes_place(link_record& link, member_record& present, steady_time now);
  void admit(link_record& link, steady_time now);
  [[nodiscard]] bool gives_way_to(const identity& other) const;
  void meet_own_name(link_record& link, steady_time now);
  void note_name_taken(const identity& by, steady_time now);
  void step_aside(const identity& other, steady_time now);
  void make_current(member_record& of, link_record& link, steady_time now);
  [[nodiscard]] bool is_better(const link_record& fresh, const link_record& present) const;
  void lose(member_record& which, peer_state into, const std::string& why, steady_time now);
  void set_state(member_record& which, peer_state into, steady_time now);

  std::optional<other_frame> take_frame(member_record& from, link_record& link, const peer::frame_view& frame,
                                        steady_time now);
  void note_alive(member_record& which, steady_time now);
  result<void> take_beat(member_record& from, link_record& link, const peer::frame_view& frame, steady_time now);
  [[nodiscard]] bool is_news(const peer::viewed& seen) const;
  void take_view(const peer::view& what, steady_time now);
  void beat_all(steady_time now);
  void tell_weight(link_record& to);
  void send_beat(link_record& to, std::uint64_t view_hash, steady_time now);
  void send_views();
  void watch_silence(steady_time now);
  void end_slow_greetings(steady_time now);
  void limit_greetings();
  void tell(news::kind what, const identity& who, std::string why, bool is_fatal = false);
  [[nodiscard]] steady_time next_due(steady_time now) const;

  identity self_;
  membership_options options_;
  std::vector<name_record> names_;
  std::map<std::string, contact_record> contacts_;  ///< by address
  std::map<std::string, member_record> members_;    ///< by name
  std::map<peer::link_id, link_record> links_;
  std::vector<saying> sayings_;
  std::vector<news> news_;
  membership_counters counters_;
  std::uint64_t epoch_ = 1;
  std::uint64_t revision_ = 1;
  std::uint64_t jitter_;
  steady_time next_beat_;
  steady_time now_;          ///< of the last call
  steady_time promised_;     ///< for when the next advance() was asked for
  nanoseconds excused_{0};   ///< lateness of this node's own, in all
  bool was_let_in_ = false;  ///< somebody was live once
  bool has_left_ = false;
  std::optional<steady_time> name_taken_since_;
  steady_time out_until_{};  ///< this node has stepped aside for its namesake
};

}  // namespace cenote::cluster
