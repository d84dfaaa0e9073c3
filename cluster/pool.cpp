#include "cluster/pool.hpp"

#include <algorithm>
#include <utility>

#include "core/calendar_clock.hpp"

namespace cenote::cluster {

namespace {

constexpr std::size_t most_closed = 256;  // links
constexpr std::size_t most_names = 4096;
/// Nanoseconds since 1970: in 2262. No node's clock says that, however wrong it is.
constexpr std::uint64_t beyond_all_clocks = std::uint64_t{1} << 63;

bool is_answer(peer::frame_type type) noexcept {
  using enum peer::frame_type;
  return type == bound || type == located || type == fetched || type == elsewhere || type == accept || type == stored ||
         type == forgot;
}

bool is_handover(peer::frame_type type) noexcept {
  using enum peer::frame_type;
  return type == follow || type == handed || type == unfollow;
}

}  // namespace

void pool::join(pool_half* asker, pool_half* guest) noexcept {
  if (asker != nullptr) asker_ = asker;
  if (guest != nullptr) guest_ = guest;
}

void pool::use(std::shared_ptr<peer::network> network) {
  const std::lock_guard lock(early_mutex_);
  network_.store(network);
  if (!network) return;
  for (auto& each : std::exchange(early_, {})) network->run(std::move(each));
  network->run([this] { advance(); });  // alarms that rang without a network were lost
}

void pool::post_early(std::function<void()> action) {
  const std::lock_guard lock(early_mutex_);
  if (const auto network = network_.load()) return network->run(std::move(action));
  early_.push_back(std::move(action));
}

void pool::advance_early() {
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard lock(early_mutex_);
    if (network_.load()) return;
    actions = std::exchange(early_, {});
  }
  for (const auto& each : actions) each();
  advance();
}

bool pool::post(std::function<void()> what) {
  const auto network = network_.load();
  if (network) network->run(std::move(what));
  return network != nullptr;
}

void pool::take_members(pool_members now) {
  members_ = std::move(now);
  std::erase_if(members_.others, [&](const pool_member& each) { return is_closed(each.link); });
  for (pool_half* const each : {asker_, guest_, handovers_}) {
    if (each != nullptr) each->members_changed();
  }
  flush();
}

std::uint32_t pool::number_of(const std::string& node) {
  const auto found = std::ranges::find(names_, node);
  if (found == names_.end() && names_.size() >= most_names) return 0;
  const auto number = static_cast<std::uint32_t>(found - names_.begin()) + 1;
  if (found == names_.end()) names_.push_back(node);
  return number;
}

std::string pool::name_of(std::uint32_t number) const {
  return number == 0 || number > names_.size() ? std::string() : names_[number - 1];
}

const pool_member* pool::member_on(peer::link_id link) const noexcept {
  const auto found = std::ranges::find(members_.others, link, &pool_member::link);
  return found == members_.others.end() ? nullptr : &*found;
}

bool pool::drops(peer::link_id link, bool is_sent) const noexcept {
  const pool_member* const other = member_on(link);
  return other != nullptr && (is_sent ? other->drops_sent : other->drops_heard);
}

void pool::heard(peer::link_id from, peer::frame_type type, std::uint64_t request, std::span<const std::byte> body) {
  pool_half* const to = is_handover(type) ? handovers_ : is_answer(type) ? asker_ : guest_;
  if (to != nullptr && member_on(from) != nullptr) to->heard(from, type, request, body);
}

peer::landing pool::expects(peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
  pool_half* const to = head.what == static_cast<std::uint16_t>(piece_kind::asked) ? asker_ : guest_;
  if (to == nullptr || drops(from, false)) return {};
  return to->expects(from, head, bytes);
}

void pool::landed(peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
  pool_half* const to = head.what == static_cast<std::uint16_t>(piece_kind::asked) ? asker_ : guest_;
  if (to != nullptr) to->landed(from, head, piece);
}

void pool::sent(peer::link_id to, std::uint64_t token, bool is_sent) {
  pool_half* const of = is_offer(token) ? asker_ : guest_;
  if (of != nullptr) of->sent(to, token, is_sent);
}

bool pool::is_closed(peer::link_id link) const noexcept {
  return std::ranges::find(closed_, link) != closed_.end();
}

void pool::closed(peer::link_id which) {
  closed_.push_back(which);
  if (closed_.size() > most_closed) closed_.pop_front();
  std::erase_if(members_.others, [&](const pool_member& each) { return each.link == which; });
  for (pool_half* const each : {asker_, guest_, handovers_}) {
    if (each != nullptr) each->closed(which);
  }
}

void pool::flush() {
  for (pool_half* const each : {asker_, guest_, handovers_}) {
    if (each != nullptr) each->flush();
  }
}

void pool::advance() {
  wakes_at_ = steady_time::max();
  for (pool_half* const each : {asker_, guest_, handovers_}) {
    if (each != nullptr) each->advance(now());
  }
  flush();
}

void pool::send(peer::link_id to, peer::frame_type type, std::uint64_t request, std::span<const std::byte> body) {
  const auto network = network_.load();
  if (!network || drops(to, true)) return;
  network->send(to, peer::encode_frame(type, request, members_.born, body));
}

void pool::send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory) {
  const auto network = network_.load();
  if (!network) return;  // it has ended, and so will whoever sends
  if (!drops(to, true)) return network->send_block(to, head, memory);
  network->run([this, to, token = head.token] { sent(to, token, true); });  // on a network that is cut nobody knows
}

void pool::close(peer::link_id which, const std::string& why) {
  if (const auto network = network_.load()) network->close(which, error(error_code::closed, why));
}

void pool::wake_at(steady_time when) {
  if (when >= wakes_at_) return;
  wakes_at_ = when;
  wakes_(when);
}

pool_counters pool::copy_counters() {
  pool_counters copy;
  for (const auto& row : figure_table<pool_counters>::rows) {
    const auto member = std::get<std::uint64_t pool_counters::*>(row.value);
    copy.*member = std::atomic_ref(counters.*member).load(std::memory_order_relaxed);
  }
  return copy;
}

std::uint64_t pool::cleared(instance_identity identity) const noexcept {
  const auto found = cleared_.find(identity);
  return found == cleared_.end() ? 0 : found->second.heard;
}

std::uint64_t pool::told_cleared(instance_identity identity) const noexcept {
  const auto found = cleared_.find(identity);
  return found == cleared_.end() ? forgotten_[identity.spread() % forgotten_.size()] : found->second.heard;
}

std::uint64_t pool::carried_out(instance_identity identity) const noexcept {
  const auto found = cleared_.find(identity);
  return found == cleared_.end() ? 0 : found->second.carried_out;
}

void pool::learn_cleared(instance_identity identity, std::uint64_t number, std::span<const std::byte> spec) {
  if (guest_ != nullptr) guest_->learn_cleared(identity, number, spec);
}

void pool::clear_hosted(instance_identity identity, std::function<void(std::string)> then) {
  if (guest_ != nullptr) return guest_->clear_hosted(identity, std::move(then));
  note_carried_out(identity);
  then({});
}

result<std::uint64_t> pool::write_off(const std::string& node) {
  if (asker_ == nullptr) return fail(error_code::unsupported, "this node asks no others for blocks");
  auto released = asker_->write_off(node);
  flush();
  return released;
}

void pool::learn_write_off(const std::string& node, std::uint64_t number) {
  if (departures.learn(node, number) && asker_ != nullptr) asker_->take_write_off(node);
}

void pool::learn_return(std::uint64_t number) {
  if (departures.is_closed(number)) return;
  departures.close_elsewhere(number);
  const auto& nodes = departures.record().nodes;
  const auto known = std::ranges::find(nodes, number, [](const auto& each) { return each.second; });
  if (known != nodes.end() && asker_ != nullptr) asker_->take_return(known->first);
}

void pool::remove_hosted(instance_identity identity, const std::vector<block_key>& keys,
                         std::function<void(std::string)> then) {
  if (guest_ != nullptr) return guest_->remove_hosted(identity, keys, std::move(then));
  then({});
}

std::uint64_t pool::next_clear(instance_identity identity) {
  auto& known = remember_clears(identity).heard;
  known = std::max(calendar_ns(), known + 1);
  return known;
}

std::uint64_t pool::credible_clear(std::uint64_t number) noexcept {
  return std::min(number, beyond_all_clocks + calendar_ns());
}

void pool::note_cleared(instance_identity identity, std::uint64_t number) {
  auto& known = remember_clears(identity).heard;
  known = std::max(known, number);
}

/// One that is new begins at what others were told of it before: were it less, it would be the oldest itself, and two
/// such instances would take each other's place, and be cleared, without an end.
clear_numbers& pool::remember_clears(instance_identity identity) {
  ++clear_changes_;
  if (const auto known = cleared_.find(identity); known != cleared_.end()) return known->second;
  if (cleared_.size() >= most_cleared) {
    const auto oldest = std::ranges::min_element(cleared_, {}, [](const auto& each) { return each.second.heard; });
    auto& forgotten = forgotten_[oldest->first.spread() % forgotten_.size()];
    forgotten = std::max(forgotten, oldest->second.heard);
    cleared_.erase(oldest);
  }
  clear_numbers& made = cleared_[identity];
  made.heard = forgotten_[identity.spread() % forgotten_.size()];
  return made;
}

void pool::forget_cleared(instance_identity identity) {
  const auto found = cleared_.find(identity);
  if (found == cleared_.end()) return;
  ++clear_changes_;
  found->second.heard = found->second.carried_out;
  if (found->second.carried_out == 0) cleared_.erase(found);
}

void pool::note_carried_out(instance_identity identity) {
  const auto found = cleared_.find(identity);
  if (found == cleared_.end() || found->second.carried_out == found->second.heard) return;
  ++clear_changes_;
  found->second.carried_out = found->second.heard;
}

clear_record pool::clears() const {
  return {.floor = std::ranges::max(forgotten_), .numbers = cleared_};
}

void pool::restore_clears(const clear_record& record) {
  forgotten_.fill(record.floor);
  for (const auto& [identity, numbers] : record.numbers) {
    if (numbers.carried_out != 0) cleared_[identity] = {numbers.carried_out, numbers.carried_out};
  }
}

}  // namespace cenote::cluster
