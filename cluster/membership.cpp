#include "cluster/membership.hpp"

#include <algorithm>
#include <utility>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"

namespace cenote::cluster {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_contacts = peer::most_members;
constexpr auto least_wait = 1ms;            // for what is due and has to wait for others
constexpr std::ptrdiff_t most_dials = 32;   // that nobody has let in yet: a view may name thousands
constexpr std::size_t most_greetings = 64;  // of links that others dialled: one more, and the oldest is closed
constexpr int beats_of_spares = 2;          // both sides have greeted on the other link by then

/// A clock's number, for the other side to send back.
std::int64_t ns_of(steady_time when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

identity identity_of(const peer::greeting& from) {
  return {from.name, from.version, from.where, from.blocks_at, from.born, from.weight, from.features};
}

/// Whether it is one node, in this life or another one of its worker: a new worker may listen somewhere else.
bool is_same_node(const identity& one, const identity& other) {
  return one.born.started_ms() == other.born.started_ms();
}

}  // namespace

membership::membership(identity self, membership_options options, steady_time now)
    : self_(std::move(self)),
      options_(std::move(options)),
      jitter_(options_.jitter_seed | 1),
      next_beat_(now + options_.beat),
      now_(now),
      promised_(now) {
  for (const endpoint& each : options_.names) names_.push_back({.place = each, .next = now, .begin = now});
  for (const endpoint& each : options_.seeds) add_contact(each, {}, true, now);
  add_contact(self_.where, self_.name, false, now);
  contacts_.at(self_.where.text()).is_self = true;
}

// ---- time

/// How late this call is, by what was promised, is nobody else's silence.
void membership::note_time(steady_time now) {
  now_ = now;
  if (now <= promised_) return;
  if (options_.rules.subtracts_lateness) excused_ += now - promised_;
  promised_ = now;
}

membership::nanoseconds membership::silence_of(const member_record& of, steady_time now) const {
  return (now - of.heard_at) - (excused_ - of.excused_then);
}

void membership::finish(steady_time now) {
  if (!has_left_) send_views();
  promised_ = std::max(now, next_due(now));
}

steady_time membership::next_due(steady_time now) const {
  if (has_left_) return now + std::chrono::hours(1);  // advance() has nothing to do any more
  steady_time due = next_beat_;
  for (const name_record& each : names_) {
    if (!each.is_asked) due = std::min(due, std::max(each.next, now + least_wait));
  }
  for (const auto& [address, each] : contacts_) {
    if (!each.is_dialled && is_wanted(each)) due = std::min(due, std::max({each.next, now + least_wait, out_until_}));
  }
  for (const auto& [id, each] : links_) {
    if (each.is_closing) continue;
    if (each.at != stage::greeted) due = std::min(due, each.begun + options_.greet_within);
    if (each.close_at) due = std::min(due, *each.close_at);
  }
  for (const auto& [name, each] : members_) {
    if (each.link == 0) continue;
    const nanoseconds limit = each.state == peer_state::live ? options_.suspect_after : options_.gone_after;
    due = std::min(due, now + std::max(nanoseconds(least_wait), limit - silence_of(each, now)));
  }
  return due;
}

void membership::advance(steady_time now) {
  note_time(now);
  if (!has_left_) {
    watch_silence(now);
    end_slow_greetings(now);
    forget_old(now);
    look_up_due(now);
    dial_due(now);
    if (now >= next_beat_) beat_all(now);
  }
  finish(now);
}

// ---- whom to dial

void membership::add_contact(const endpoint& where, const std::string& name, bool is_seed, steady_time now) {
  const std::string address = where.text();
  if (const auto found = contacts_.find(address); found != contacts_.end()) {
    if (!name.empty() && !found->second.is_self) found->second.name = name;
    return;
  }
  if (contacts_.size() >= most_contacts) return;
  contacts_[address] = {.where = where, .is_seed = is_seed, .name = name, .next = now, .since = now};
}

/// Somebody should be behind it, and is not there.
bool membership::is_wanted(const contact_record& of) const {
  if (of.is_self || has_left_) return false;
  const auto member = members_.find(of.name);
  if (member == members_.end()) return true;
  const peer_state state = member->second.state;
  return state != peer_state::live && state != peer_state::suspect && (state != peer_state::left || of.is_seed);
}

void membership::look_up_due(steady_time now) {
  for (name_record& each : names_) {
    if (each.is_asked || now < each.next) continue;
    each.is_asked = true;
    sayings_.emplace_back(lookup_saying{each.place});
  }
}

void membership::take_addresses(const endpoint& name, const result<std::vector<endpoint>>& addresses, steady_time now) {
  note_time(now);
  const auto found = std::ranges::find(names_, name.text(), [](const auto& each) { return each.place.text(); });
  if (found != names_.end()) {
    found->is_asked = false;
    found->is_known = addresses.has_value();
    found->reason = addresses ? std::string() : addresses.error().message();
    found->next = now + jittered(options_.longest_pause);
    if (addresses) take_seeds(name.text(), *addresses, now);
  }
  finish(now);
}

/// The name stands for these now; what it stood for before is one more address of which others may know.
void membership::take_seeds(const std::string& name, const std::vector<endpoint>& addresses, steady_time now) {
  for (auto& [address, each] : contacts_) {
    if (each.seed_name != name || std::ranges::find(addresses, address, &endpoint::text) != addresses.end()) continue;
    each.seed_name.clear();
    each.is_seed = false;
    each.since = now;
  }
  for (const endpoint& where : addresses) {
    add_contact(where, {}, false, now);
    const auto found = contacts_.find(where.text());
    if (found == contacts_.end() || found->second.is_seed) continue;  // there is no room, or it is a seed by its number
    found->second.seed_name = name;
    found->second.is_seed = true;
  }
}

void membership::dial_due(steady_time now) {
  auto left = most_dials - std::ranges::count_if(contacts_, [&](const auto& each) {
                const auto link = links_.find(each.second.link);
                return each.second.is_dialled && (link == links_.end() || link->second.at != stage::greeted);
              });
  for (auto& [address, each] : contacts_) {
    if (each.is_dialled || now < each.next || now < out_until_ || !is_wanted(each) || --left < 0) continue;
    each.is_dialled = true;
    sayings_.emplace_back(dial_saying{each.where});
  }
}

void membership::dialling(const endpoint& where, peer::link_id link) {
  link_record& made = links_[link];
  made.id = link;
  made.is_dialled = true;
  made.contact = where.text();
  made.begun = now_;
  if (const auto found = contacts_.find(made.contact); found != contacts_.end()) found->second.link = link;
}

membership::milliseconds membership::jittered(milliseconds pause) {
  jitter_ ^= jitter_ << 13U;
  jitter_ ^= jitter_ >> 7U;
  jitter_ ^= jitter_ << 17U;
  return pause / 2 +
         milliseconds(static_cast<std::int64_t>(jitter_ % static_cast<std::uint64_t>(pause.count() / 2 + 1)));
}

void membership::put_off(contact_record& which, steady_time now) {
  which.is_dialled = false;
  which.link = 0;
  which.pause = std::clamp(which.pause * 2, options_.first_pause, options_.longest_pause);
  which.next = now + jittered(which.pause);
}

void membership::forget_old(steady_time now) {
  for (auto each = members_.begin(); each != members_.end();) {
    const member_record& one = each->second;
    const bool is_over = one.link == 0 && now - one.since > options_.forget_after;
    revision_ += is_over ? 1 : 0;
    each = is_over ? members_.erase(each) : std::next(each);
  }
  for (auto each = contacts_.begin(); each != contacts_.end();) {
    const contact_record& one = each->second;
    const bool is_over = !one.is_seed && !one.is_self && !one.is_dialled && !members_.contains(one.name) &&
                         now - one.since > options_.forget_after;
    each = is_over ? contacts_.erase(each) : std::next(each);
  }
}

// ---- greeting

peer::greeting membership::greeting_with(const peer::nonce& once) const {
  return {.cluster = options_.cluster,
          .name = self_.name,
          .version = self_.version,
          .where = self_.where,
          .blocks_at = self_.blocks_at,
          .born = self_.born,
          .once = once,
          .features = self_.features,
          .weight = self_.weight,
          .has_secret = !options_.shared.is_empty()};
}

void membership::send(peer::link_id to, peer::frame_type type, std::span<const std::byte> body) {
  sayings_.emplace_back(frame_saying{to, peer::encode_frame(type, 0, self_.born, body)});
}

void membership::close(link_record& which, const error& why) {
  if (std::exchange(which.is_closing, true)) return;
  sayings_.emplace_back(close_saying{which.id, why});
}

void membership::refuse(link_record& which, peer::refusal why, const std::string& text) {
  ++counters_.greetings_refused;
  send(which.id, peer::frame_type::refuse, peer::encode(peer::refuse{why, text}));
  which.close_at = now_ + options_.beat;  // a forced close would overtake the frame
}

void membership::opened(peer::link_id link, bool is_dialled, steady_time now) {
  note_time(now);
  link_record& which = links_[link];
  which.id = link;
  which.is_dialled = is_dialled;
  which.begun = now;
  which.once = peer::new_nonce();
  which.own_greeting = peer::encode(greeting_with(which.once));
  which.told_weight = self_.weight;
  if (has_left_) {
    close(which, error(error_code::closed, "this node stops"));
  } else if (is_dialled) {
    which.at = stage::awaits_challenge;
    send(link, peer::frame_type::hello, which.own_greeting);
  } else {
    which.at = stage::awaits_hello;
    limit_greetings();
  }
  finish(now);
}

void membership::limit_greetings() {
  const auto is_new = [](const auto& each) {
    return !each.second.is_dialled && each.second.at != stage::greeted && !each.second.is_closing;
  };
  if (static_cast<std::size_t>(std::ranges::count_if(links_, is_new)) <= most_greetings) return;
  const auto oldest = std::ranges::find_if(links_, is_new);
  ++counters_.greetings_late;
  close(oldest->second, error(error_code::limit_exceeded, "too many links are being greeted"));
}

void membership::end_slow_greetings(steady_time now) {
  for (auto& [id, each] : links_) {
    if (!options_.rules.greets_in_time && !each.close_at) continue;
    if (each.close_at && now >= *each.close_at) {
      close(each, error(error_code::closed, each.at == stage::greeted ? "there is another link" : "it was refused"));
    } else if (each.at != stage::greeted && now - each.begun >= options_.greet_within && !each.is_closing) {
      ++counters_.greetings_late;
      close(each, error(error_code::deadline_exceeded,
                        "no greeting within " + std::to_string(options_.greet_within.count()) + " ms"));
    }
  }
}

std::optional<other_frame> membership::heard(peer::link_id from, std::span<const std::byte> bytes, steady_time now) {
  note_time(now);
  std::optional<other_frame> handed_back;
  const auto found = links_.find(from);
  if (found != links_.end() && !found->second.is_closing && !has_left_)
    handed_back = take_bytes(found->second, bytes, now);
  finish(now);
  return handed_back;
}

std::optional<other_frame> membership::take_bytes(link_record& link, std::span<const std::byte> bytes,
                                                  steady_time now) {
  ++counters_.frames;
  const auto frame = peer::decode_frame(bytes);
  if (!frame) {
    ++counters_.bad_frames;
    if (link.close_at) return std::nullopt;  // refused: whatever comes is of no use
    if (frame.error().code() == error_code::protocol_mismatch && link.at == stage::awaits_hello) {
      note_refusal(link, frame.error().message());
      refuse(link, peer::refusal::other_version, frame.error().message());  // in this version, which it can name then
    } else {
      close(link, frame.error());
    }
  } else if (link.at != stage::greeted) {
    greet_or_close(link, *frame, now);
  } else if (frame->from != link.who.born) {
    ++counters_.stale_frames;
  } else if (const auto member = members_.find(link.who.name); member != members_.end()) {
    return take_frame(member->second, link, *frame, now);
  }
  return std::nullopt;
}

void membership::greet_or_close(link_record& from, const peer::frame_view& frame, steady_time now) {
  using enum peer::frame_type;
  result<void> taken =
      fail(error_code::malformed,
           "a frame of type " + std::to_string(static_cast<unsigned>(frame.type)) + " before the greeting is over");
  if (from.close_at) return;  // refused: whatever comes is of no use
  if (frame.type == refuse) taken = take_refusal(from, frame, now);
  if (frame.type == hello && from.at == stage::awaits_hello) taken = take_hello(from, frame);
  if (frame.type == challenge && from.at == stage::awaits_challenge) taken = take_challenge(from, frame);
  if (frame.type == welcome && from.at == stage::awaits_welcome) taken = take_welcome(from, frame, now);
  if (frame.type == beat && from.at == stage::awaits_beat) taken = take_first_beat(from, frame, now);
  if (taken) return;
  ++counters_.bad_frames;
  close(from, taken.error());
}

result<void> membership::take_hello(link_record& from, const peer::frame_view& frame) {
  const auto hello = peer::decode_hello(frame.body);
  if (!hello) return std::unexpected(hello.error());
  const peer::greeting& who = hello->who;
  const bool is_own = std::ranges::any_of(
      links_, [&](const auto& each) { return each.second.is_dialled && each.second.once == who.once; });
  from.who = identity_of(who);
  if (now_ < out_until_) {
    refuse(from, peer::refusal::closing, "this node's name is taken: it stays out");
  } else if (is_own) {
    refuse(from, peer::refusal::itself, "this is the node itself");
  } else if (who.cluster != options_.cluster) {
    refuse(from, peer::refusal::other_cluster,
           "this is a node of cluster `" + options_.cluster + "`, not of `" + who.cluster + "`: see cluster.id");
  } else {
    from.agreed = peer::agree(options_.shared, frame.body, from.own_greeting);
    from.at = stage::awaits_welcome;
    send(from.id, peer::frame_type::challenge, peer::encode_challenge(from.agreed.of_listener, from.own_greeting));
  }
  return {};
}

std::string membership::why_not_proved(const peer::greeting& other) const {
  if (other.has_secret == options_.shared.is_empty())
    return options_.shared.is_empty() ? "the other node has a secret and this one has none: see cluster.secret_file"
                                      : "this node has a secret and the other one has none: see cluster.secret_file";
  return "the other node has another secret: see cluster.secret_file";
}

result<void> membership::take_challenge(link_record& from, const peer::frame_view& frame) {
  const auto challenge = peer::decode_challenge(frame.body);
  if (!challenge) return std::unexpected(challenge.error());
  from.who = identity_of(challenge->who);
  from.agreed = peer::agree(options_.shared, from.own_greeting, frame.body.subspan(sizeof(peer::proof)));
  if (!peer::are_equal(challenge->shown, from.agreed.of_listener)) {
    const std::string why = why_not_proved(challenge->who);
    refuse(from, peer::refusal::wrong_secret, why);
    note_refusal(from, why);
    return {};
  }
  send(from.id, peer::frame_type::welcome, peer::encode(peer::welcome{from.agreed.of_dialler}));
  from.at = stage::awaits_beat;  // the other side may still refuse this one
  return {};
}

/// The other side has let this one in.
result<void> membership::take_first_beat(link_record& from, const peer::frame_view& frame, steady_time now) {
  if (frame.from != from.who.born) return fail(error_code::malformed, "a frame of another node");
  admit(from, now);
  const auto member = members_.find(from.who.name);
  if (from.is_closing || member == members_.end()) return {};
  return take_beat(member->second, from, frame, now);
}

result<void> membership::take_welcome(link_record& from, const peer::frame_view& frame, steady_time now) {
  const auto welcome = peer::decode_welcome(frame.body);
  if (!welcome) return std::unexpected(welcome.error());
  if (!peer::are_equal(welcome->shown, from.agreed.of_dialler)) {
    refuse(from, peer::refusal::wrong_secret, "the secrets differ: see cluster.secret_file");
    note_refusal(from, "it does not know the secret");
    return {};
  }
  admit(from, now);
  return {};
}

result<void> membership::take_refusal(link_record& from, const peer::frame_view& frame, steady_time now) {
  const auto said = peer::decode_refuse(frame.body);
  if (!said) return std::unexpected(said.error());
  const bool is_proved = from.at == stage::awaits_beat || from.at == stage::greeted;
  if (const auto found = contacts_.find(from.contact); from.is_dialled && found != contacts_.end())
    found->second.is_self = found->second.is_self || said->why == peer::refusal::itself;
  const bool is_final = said->why != peer::refusal::closing;
  if (is_final && said->why != peer::refusal::itself) note_refusal(from, said->text);
  if (is_proved && said->why == peer::refusal::name_taken) {
    if (from.who.name != self_.name) {
      note_name_taken(from.who, now);  // by one who is gone, perhaps: those who let this node in keep it
    } else if (gives_way_to(from.who)) {
      step_aside(from.who, now);
    }
  }
  close(from, error(error_code::permission_denied, said->text));
  return {};
}

/// It will be asked again, but not soon.
void membership::note_refusal(const link_record& of, const std::string& why) {
  identity who = of.who;
  if (const auto found = contacts_.find(of.contact); of.is_dialled && found != contacts_.end()) {
    found->second.was_refused = true;
    found->second.why = why;
    found->second.pause = options_.longest_pause;
    who.where = found->second.where;
  }
  tell(news::kind::refused, who, why);
}

// ---- who is let in

/// Of two nodes with one name the later one gives way.
bool membership::gives_way_to(const identity& other) const {
  if (self_.born.started_ms() != other.born.started_ms()) return self_.born.started_ms() > other.born.started_ms();
  return self_.where.text() > other.where.text();
}

/// Whether a link may stand for a name behind which there is a node. Everybody keeps the node that was started first,
/// so that of two with one name one is in and the other out; of one node a later worker.
bool membership::takes_place(link_record& link, member_record& present, steady_time now) {
  const identity& who = link.who;
  if (is_same_node(present.who, who) || !options_.rules.refuses_taken_names) {
    if (who.born >= present.who.born) return true;
    ++counters_.stale_frames;
    close(link, error(error_code::closed, "it is of an earlier worker"));
    return false;
  }
  if (who.born > present.who.born) {
    refuse(link, peer::refusal::name_taken,
           "another node named `" + who.name + "` is alive at " + present.who.where.text() + ": see cluster.name");
    return false;
  }
  if (const auto its = links_.find(present.link); its != links_.end())
    refuse(its->second, peer::refusal::name_taken, "another node named `" + who.name + "` was there before");
  lose(present, peer_state::gone, "its name is another node's", now);
  return true;
}

void membership::admit(link_record& link, steady_time now) {
  link.at = stage::greeted;
  const identity& who = link.who;
  if (who.name == self_.name) return meet_own_name(link, now);
  const auto found = members_.find(who.name);
  if (found == members_.end() && members_.size() >= peer::most_members)
    return refuse(link, peer::refusal::closing, "this node knows too many others");
  if (found != members_.end() && found->second.link != 0 && !takes_place(link, found->second, now)) return;
  if (!link.is_dialled) {
    sayings_.emplace_back(await_saying{link.id, link.agreed.for_blocks});
    send_beat(link, current().hash, now);  // that is how the other side knows
  }
  add_contact(who.where, who.name, false, now);
  if (const auto contact = contacts_.find(link.contact); link.is_dialled && contact != contacts_.end()) {
    contact->second.name = who.name;
    contact->second.was_refused = false;
    contact->second.why.clear();
    contact->second.pause = milliseconds(0);
  }
  member_record& member = members_[who.name];
  member.heard_at = now;
  member.excused_then = excused_;
  const auto present = links_.find(member.link);
  if (present == links_.end() || is_better(link, present->second)) {
    make_current(member, link, now);
  } else if (options_.rules.keeps_one_link) {
    link.close_at = now + beats_of_spares * options_.beat;
  }
}

/// Whether `fresh` takes the place of `present`, both to one node: each end answers alike.
bool membership::is_better(const link_record& fresh, const link_record& present) const {
  const member_record& member = members_.at(fresh.who.name);
  if (fresh.who.born != present.who.born || member.state != peer_state::live || present.is_closing) return true;
  if (fresh.is_dialled == present.is_dialled) return true;  // its dialler has lost the other one
  return fresh.is_dialled == (self_.name < fresh.who.name);
}

void membership::make_current(member_record& of, link_record& link, steady_time now) {
  if (const auto present = links_.find(of.link); present != links_.end() && options_.rules.keeps_one_link) {
    present->second.close_at = now + beats_of_spares * options_.beat;
  }
  const bool was_there = of.state == peer_state::live && of.who.born == link.who.born;
  const bool is_known = of.since != steady_time{};
  of.who = link.who;
  of.link = link.id;
  ++revision_;
  of.view_sent = 0;
  of.why.clear();
  link.close_at.reset();
  was_let_in_ = true;
  name_taken_since_.reset();
  if (link.is_dialled) sayings_.emplace_back(join_saying{link.id, link.who.blocks_at, link.agreed.for_blocks});
  if (was_there) return;
  ++counters_.joined;
  set_state(of, peer_state::live, now);
  tell(is_known ? news::kind::recovered : news::kind::joined, of.who, {});
  ++epoch_;
}

void membership::meet_own_name(link_record& link, steady_time now) {
  const identity other = link.who;
  refuse(link, peer::refusal::name_taken,
         "another node named `" + self_.name + "` is alive at " + self_.where.text() + ": see cluster.name");
  if (gives_way_to(other)) step_aside(other, now);
}

void membership::note_name_taken(const identity& by, steady_time now) {
  if (!name_taken_since_) name_taken_since_ = now;
  const bool is_fatal = !was_let_in_ && now - *name_taken_since_ >= options_.gone_after + options_.greet_within;
  tell(news::kind::name_taken, by, "another node named `" + self_.name + "` is alive", is_fatal);
}

/// For long enough that those who took this node for the other one let that one in.
void membership::step_aside(const identity& other, steady_time now) {
  note_name_taken(other, now);
  out_until_ = now + options_.longest_pause + options_.greet_within;
  for (auto& [id, each] : links_) {
    if (each.at != stage::greeted || each.is_closing) continue;
    send(id, peer::frame_type::leave, {});
    each.close_at = now + options_.beat;
  }
}

void membership::lose(member_record& which, peer_state into, const std::string& why, steady_time now) {
  which.link = 0;
  which.why = why;
  ++counters_.lost;
  set_state(which, into, now);
  tell(into == peer_state::left ? news::kind::left : news::kind::gone, which.who, why);
  ++epoch_;
}

void membership::set_state(member_record& which, peer_state into, steady_time now) {
  which.state = into;
  which.since = now;
  ++revision_;
}

void membership::closed(peer::link_id link, const error& why, steady_time now) {
  note_time(now);
  if (const auto found = links_.find(link); found != links_.end()) {
    const link_record gone = std::move(found->second);
    links_.erase(found);
    end_link(gone, why, now);
  }
  finish(now);
}

void membership::end_link(const link_record& gone, const error& why, steady_time now) {
  if (const auto contact = contacts_.find(gone.contact); gone.is_dialled && contact != contacts_.end()) {
    if (!contact->second.was_refused) contact->second.why = why.message();
    put_off(contact->second, now);
  }
  const auto member = members_.find(gone.who.name);
  if (gone.at != stage::greeted || member == members_.end() || member->second.link != gone.id) return;
  const auto other = std::ranges::find_if(links_, [&](const auto& each) {
    return each.second.at == stage::greeted && each.second.who.name == gone.who.name && !each.second.is_closing &&
           each.second.who.born == gone.who.born;
  });
  if (other != links_.end() && now >= out_until_) {
    make_current(member->second, other->second, now);
  } else {
    lose(member->second, peer_state::gone, why.message(), now);
  }
}

// ---- those who are in

std::optional<other_frame> membership::take_frame(member_record& from, link_record& link, const peer::frame_view& frame,
                                                  steady_time now) {
  if (from.link == 0 || from.who.born != link.who.born) return std::nullopt;  // a spare link of one that is gone
  if (frame.type != peer::frame_type::refuse) note_alive(from, now);          // that one ends the link
  result<void> taken;
  switch (frame.type) {
    case peer::frame_type::beat: taken = take_beat(from, link, frame, now); break;
    case peer::frame_type::view:
      if (const auto seen = peer::decode_view(frame.body)) {
        take_view(*seen, now);
      } else {
        taken = std::unexpected(seen.error());
      }
      break;
    case peer::frame_type::weigh:
      if (const auto said = peer::decode_weigh(frame.body)) {
        link.who.weight = said->weight;
        if (from.link == link.id) from.who.weight = said->weight;
        ++revision_;
      } else {
        taken = std::unexpected(said.error());
      }
      break;
    case peer::frame_type::leave:
      lose(from, peer_state::left, "it stopped", now);
      link.close_at = now + options_.beat;
      break;
    case peer::frame_type::refuse: taken = take_refusal(link, frame, now); break;
    case peer::frame_type::hello:
    case peer::frame_type::challenge:
    case peer::frame_type::welcome: taken = fail(error_code::malformed, "a second greeting"); break;
    case peer::frame_type::ping:
    case peer::frame_type::pong:
    case peer::frame_type::bind:
    case peer::frame_type::bound:
    case peer::frame_type::locate:
    case peer::frame_type::located:
    case peer::frame_type::fetch:
    case peer::frame_type::fetch_here:
    case peer::frame_type::elsewhere:
    case peer::frame_type::fetched:
    case peer::frame_type::offer:
    case peer::frame_type::accept:
    case peer::frame_type::stored:
    case peer::frame_type::follow:
    case peer::frame_type::handed:
    case peer::frame_type::unfollow:
    case peer::frame_type::forget:
    case peer::frame_type::forgot:
    case peer::frame_type::write_off:
    case peer::frame_type::check:
    case peer::frame_type::seek_group:
    case peer::frame_type::join_group:
    case peer::frame_type::group_formed:
    case peer::frame_type::propose_lengths:
    case peer::frame_type::group_says:
    case peer::frame_type::group_here: return other_frame{link.who.name, link.id, frame};
    default: ++counters_.unknown_types;
  }
  if (!taken) {
    ++counters_.bad_frames;
    close(link, taken.error());
  }
  return std::nullopt;
}

void membership::note_alive(member_record& which, steady_time now) {
  which.heard_at = now;
  which.excused_then = excused_;
  if (which.state != peer_state::suspect) return;
  ++counters_.recovered;
  set_state(which, peer_state::live, now);
  tell(news::kind::recovered, which.who, {});
  ++epoch_;
}

result<void> membership::take_beat(member_record& from, link_record& link, const peer::frame_view& frame,
                                   steady_time now) {
  const auto what = peer::decode_beat(frame.body);
  if (!what) return std::unexpected(what.error());
  from.view_hash = what->view_hash;
  link.last_sent_ns = what->sent_ns;
  link.last_beat = now;
  if (what->echo_ns <= 0 || what->echo_ns > ns_of(now)) return {};  // none, or one that this node never sent
  const std::int64_t age = ns_of(now) - what->echo_ns;
  if (what->held_ns < 0 || age < what->held_ns) return {};
  const nanoseconds sample(age - what->held_ns);
  const bool is_least = from.round_trip == nanoseconds(0) || sample < from.round_trip;
  from.round_trip = is_least ? sample : from.round_trip + (sample - from.round_trip) / 16;
  return {};
}

/// Whether what another node sees is a reason to dial: somebody who is not there, in a life that this node has not seen
/// the end of.
bool membership::is_news(const peer::viewed& seen) const {
  if (seen.where.text() == self_.where.text()) return false;
  const auto known = members_.find(seen.name);
  if (known == members_.end()) return true;
  const member_record& member = known->second;
  if (member.link != 0) return false;
  return member.state == peer_state::left ? seen.born > member.who.born : seen.born >= member.who.born;
}

void membership::take_view(const peer::view& what, steady_time now) {
  for (const peer::viewed& each : what.live) {
    if (!is_news(each)) continue;
    if (const auto known = members_.find(each.name); known != members_.end() && known->second.state == peer_state::left)
      set_state(known->second, peer_state::gone, now);
    add_contact(each.where, each.name, false, now);
    if (const auto contact = contacts_.find(each.where.text()); contact != contacts_.end())
      contact->second.next = std::min(contact->second.next, now + jittered(options_.first_pause));
  }
}

void membership::set_weight(std::uint64_t weight) {
  self_.weight = weight;
  ++revision_;
  for (auto& [id, each] : links_) {
    if (each.at == stage::greeted && !each.is_closing) tell_weight(each);
  }
}

/// On each link: a greeting that was under way when the weight changed has the old one.
void membership::tell_weight(link_record& to) {
  if (std::exchange(to.told_weight, self_.weight) == self_.weight) return;
  send(to.id, peer::frame_type::weigh, peer::encode(peer::weigh{self_.weight}));
}

void membership::beat_all(steady_time now) {
  const std::uint64_t seen = current().hash;
  for (auto& [id, each] : links_) {
    if (each.at != stage::greeted || each.is_closing) continue;
    tell_weight(each);
    send_beat(each, seen, now);
  }
  next_beat_ = now - next_beat_ < options_.beat ? next_beat_ + options_.beat : now + options_.beat;
}

void membership::send_beat(link_record& to, std::uint64_t view_hash, steady_time now) {
  const bool has_heard = to.last_sent_ns != 0;
  const peer::beat what{.view_hash = view_hash,
                        .sent_ns = ns_of(now),
                        .echo_ns = to.last_sent_ns,
                        .held_ns = has_heard ? ns_of(now) - ns_of(to.last_beat) : 0};
  send(to.id, peer::frame_type::beat, peer::encode(what));
}

/// To those who see something else than this node, once for each change here.
void membership::send_views() {
  std::optional<view> seen;
  std::vector<std::byte> body;
  for (auto& [name, each] : members_) {
    if (each.link == 0 || each.view_sent == epoch_) continue;
    if (!seen) {
      seen = current();
      peer::view said;
      for (const identity& one : seen->live) said.live.push_back({one.name, one.where, one.born});
      body = peer::encode(said);
    }
    each.view_sent = epoch_;
    if (each.view_hash != seen->hash && options_.rules.tells_views) send(each.link, peer::frame_type::view, body);
  }
}

void membership::watch_silence(steady_time now) {
  for (auto& [name, each] : members_) {
    if (each.link == 0) continue;
    const nanoseconds silent = silence_of(each, now);
    if (each.state == peer_state::live && silent >= options_.suspect_after) {
      ++counters_.suspected;
      set_state(each, peer_state::suspect, now);
      tell(news::kind::suspected, each.who, "silent for " + std::to_string(silent / 1ms) + " ms");
      ++epoch_;
    }
    const auto link = links_.find(each.link);
    if (silent >= options_.gone_after && link != links_.end() && options_.rules.closes_silent_links)
      close(link->second, error(error_code::deadline_exceeded, "silent for " + std::to_string(silent / 1ms) + " ms"));
  }
}

// ---- what is to be done, and what is known

void membership::tell(news::kind what, const identity& who, std::string why, bool is_fatal) {
  if (has_left_) return;  // it closes its links itself
  news_.push_back({what, who.name, who.where, std::move(why), is_fatal});
}

std::vector<saying> membership::take_sayings() {
  return std::exchange(sayings_, {});
}

std::vector<news> membership::take_news() {
  return std::exchange(news_, {});
}

view membership::current() const {
  view now{.epoch = epoch_};
  now.live.push_back(self_);
  for (const auto& [name, each] : members_) {
    if (each.state == peer_state::live) now.live.push_back(each.who);
  }
  std::ranges::sort(now.live, {}, &identity::name);
  byte_writer writer;
  for (const identity& each : now.live) {
    writer.put_text(each.name);
    writer.put(each.born.number);
  }
  now.hash = checksum_of(writer.bytes());
  return now;
}

std::string membership::name_on(peer::link_id link) const {
  const auto found = links_.find(link);
  return found == links_.end() ? std::string() : found->second.who.name;
}

std::optional<peer::link_id> membership::link_of(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end() || found->second.link == 0) return std::nullopt;
  return found->second.link;
}

peer::ticket membership::key_of(peer::link_id link) const {
  const auto found = links_.find(link);
  return found == links_.end() ? peer::ticket{} : found->second.agreed.for_blocks;
}

std::optional<peer::incarnation> membership::incarnation_of(const std::string& name) const {
  const auto found = members_.find(name);
  if (found == members_.end() || found->second.link == 0) return std::nullopt;
  return found->second.who.born;
}

/// Members, addresses behind which nobody is known, and names that have no address.
std::vector<peer_row> membership::peers() const {
  std::vector<peer_row> rows;
  rows.reserve(members_.size() + contacts_.size() + names_.size());
  for (const auto& [name, each] : members_)
    rows.push_back({each.who, each.state, each.since, each.round_trip, each.link, each.why});
  for (const auto& [address, each] : contacts_) {
    if (each.is_self || members_.contains(each.name)) continue;
    const auto link = links_.find(each.link);
    const bool is_open = link != links_.end() && link->second.at != stage::opening;
    const peer_state state = each.was_refused ? peer_state::refused
                             : is_open        ? peer_state::greeting
                                              : peer_state::dialling;
    rows.push_back({{.name = each.name, .where = each.where}, state, each.since, {}, each.link, each.why});
  }
  for (const name_record& each : names_) {
    if (!each.is_known) rows.push_back({{.where = each.place}, peer_state::dialling, each.begin, {}, 0, each.reason});
  }
  return rows;
}

void membership::leave(steady_time now) {
  note_time(now);
  for (auto& [id, each] : links_) {
    if (each.at == stage::greeted && !each.is_closing) send(id, peer::frame_type::leave, {});
  }
  has_left_ = true;
  finish(now);
}

}  // namespace cenote::cluster
