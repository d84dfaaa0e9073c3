// Attach, reading, the end. Writing is in session_write.cpp.
#include "client/session.hpp"

#include <unistd.h>
#include <cerrno>
#include <ctime>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "client/thread_object.hpp"
#include "core/bulk_copy.hpp"
#include "core/device_spec.hpp"
#include "core/handover.hpp"
#include "core/runtime_paths.hpp"
#include "core/text.hpp"

namespace cenote::client {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::size_t max_keys = std::size_t{1} << 24;  // of one call
constexpr std::size_t copy_batch = 64;                  // keys that get_into pins at a time
constexpr std::size_t max_touch_entries = 512;          // a quarter of the ring
constexpr std::size_t retired_mappings = 256;           // more than that many are looked through and unmapped
constexpr seconds retired_slabs_stay{1};                // their pages, where a device keeps them
constexpr std::size_t slabs_a_look = 8;                 // mapped at a time: a call that needs the socket waits for them
constexpr std::uint32_t most_slabs_ahead = 16;
constexpr milliseconds fetch_patience{500};  // ahead of need: what a call needs it fetches
constexpr milliseconds pause_of_batches{1};  // in which a call that needs the socket gets it
constexpr milliseconds shortest_look{5};
constexpr milliseconds longest_look{1000};
constexpr milliseconds close_patience{2000};
constexpr milliseconds tell_patience{100};
constexpr std::chrono::hours longest_locate{1};
constexpr std::size_t locate_pieces = 8;      // batches under way at a time
constexpr int part_for_the_way = 8;           // of the time: the node's answer comes before nobody waits for it
constexpr milliseconds look_for_restart{50};  // a new worker does not know an old one's prefetches

/// Coarse monotonic time: no system call, some milliseconds of grain.
std::uint64_t coarse_milliseconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1'000'000;
}

/// Between two looks for a slab that the node makes, which it does while half of the last one is left. `recent`: blocks
/// that were used in use_rate::span.
std::chrono::nanoseconds pause_of_looks(const mapped_slab* slab, std::uint64_t recent) noexcept {
  if (slab == nullptr || recent == 0) return longest_look;
  const milliseconds half(use_rate::span * slab->count / (2 * recent));
  return std::clamp(half, shortest_look, longest_look);
}

template <class T>
std::span<T> thread_scratch(std::size_t n) {
  std::vector<T>& mine = thread_object<std::vector<T>>();
  if (mine.size() < n) mine.resize(n);
  return std::span(mine).first(n);
}

std::span<const memory::block_ref> blocks_of(std::span<const memory::pin> pins) {
  const auto blocks = thread_scratch<memory::block_ref>(pins.size());
  for (std::size_t i = 0; i < pins.size(); ++i) blocks[i] = pins[i].block;
  return blocks;
}

/// One past the last flag of the last run of `window` set ones; 0 without one.
std::size_t end_of_window(std::span<const std::uint8_t> flags, std::size_t window) {
  std::size_t run = 0;
  for (std::size_t i = flags.size(); i-- > 0;) {
    run = flags[i] != 0 ? run + 1 : 0;
    if (run == window) return i + window;
  }
  return 0;
}

template <class Payload>
memory::submission& append(std::vector<memory::submission>& to, const memory::submission& blank, memory::operation what,
                           const Payload& payload, std::size_t words) {
  memory::submission& entry = to.emplace_back(blank);
  entry.op = what;
  entry.key_size = static_cast<std::uint8_t>(words * sizeof(std::uint64_t));
  std::memcpy(entry.key, &payload, entry.key_size);
  return entry;
}

void append_runs(std::span<const memory::pin> pins, const memory::submission& blank,
                 std::vector<memory::submission>& to) {
  memory::touch_runs runs{};
  std::size_t used = 0;
  for (std::size_t i = 0; i < pins.size();) {
    const memory::block_ref first = pins[i].block;
    std::size_t length = 1;
    while (i + length < pins.size() && pins[i + length].block.bits == first.bits + length &&
           pins[i + length].block.slab() == first.slab()) {
      ++length;
    }
    if (used == memory::touch_runs::capacity) {
      append(to, blank, memory::operation::touch, runs, used);
      used = 0;
    }
    runs.run[used++] = memory::touch_runs::make(first, length);
    i += length;
  }
  if (used > 0) append(to, blank, memory::operation::touch, runs, used);
}

void append_asked(key_batch keys, std::size_t resident, const memory::submission& blank,
                  std::vector<memory::submission>& to) {
  using memory::asked_ids;
  const std::size_t missing = keys.count - resident;
  const std::size_t told = std::min(missing, asked_ids::most);
  for (std::size_t done = 0; done < told;) {
    std::array<block_key, asked_ids::capacity> reduced;
    const std::size_t n = std::min(asked_ids::capacity, told - done);
    reduce_keys(keys, resident + done, blank.group, std::span(reduced).first(n));
    done += n;
    if (done == told && told < missing) reduced[n - 1] = reduce_key(keys[keys.count - 1], blank.group);
    asked_ids ids{};
    for (std::size_t i = 0; i < n; ++i) ids.id[i] = reduced[i].lo;
    append(to, blank, memory::operation::asked, ids, n);
  }
}

std::string count_of(std::uint64_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what);
}

}  // namespace

void session_closer::operator()(session* which) const noexcept {
  if (which == nullptr || which->in_child()) return;  // the mappings and threads are the parent's
  static_cast<void>(which->close());
  if (!which->device_works()) delete which;  // else it would write where something else is mapped
}

namespace {

/// The device that the blocks are to lie on; null: none. Says so in `request`, and makes the spec of `options` that of
/// what lies there.
result<std::shared_ptr<device>> open_home(session_options& options, local::attach_request& request) {
  if (options.device.empty()) {
    if (options.part == 0) return nullptr;
    return fail(error_code::invalid_argument, "a part is that of a device; say which device");
  }
  const auto named = parse_device(options.device);
  if (!named) return std::unexpected(named.error());
  auto here = instance_on_device({.whole = options.spec, .rank = options.part}, named->name);
  if (!here) return std::unexpected(here.error());
  auto opened = device::open(options.device);
  if (!opened) return std::unexpected(opened.error());
  options.spec = std::move(*here);
  request.device = named->name;
  request.part = options.part;
  return std::shared_ptr<device>(std::move(*opened));
}

}  // namespace

result<session_ptr> session::attach(session_options options) {
  if (auto ok = validate(options.spec); !ok) return std::unexpected(ok.error());
  if (options.max_pins == 0 || options.max_pins > memory::session_memory::max_pin_slots) {
    return fail(error_code::invalid_argument, "max_pins is " + std::to_string(options.max_pins) + "; it must be 1 to " +
                                                  std::to_string(memory::session_memory::max_pin_slots));
  }
  if (options.deadline <= std::chrono::nanoseconds::zero()) {
    return fail(error_code::invalid_argument, "the deadline must be longer than zero");
  }
  if (options.socket.empty()) options.socket = default_socket_path();
  if (options.client_name.empty()) options.client_name = printable(program_invocation_short_name);
  if (auto ok = check_name("client name", options.client_name, max_name_bytes); !ok) return std::unexpected(ok.error());
  local::attach_request request{
      .spec = options.spec, .max_pins = options.max_pins, .token = options.token, .client_name = options.client_name};
  auto home = open_home(options, request);
  if (!home) return std::unexpected(home.error());
  auto parts = attach_to(options.socket, request, steady_clock::now() + options.deadline);
  if (!parts) return std::unexpected(parts.error());
  return session_ptr(std::make_unique<session>(std::move(*parts), std::move(options), std::move(*home)).release());
}

session::session(attachment parts, session_options options, std::shared_ptr<device> home)
    : options_(std::move(options)),
      ids_(parts.ids),
      session_segment_(std::move(parts.session)),
      memory_(session_segment_.data(), ids_.pin_slots),
      index_(std::move(parts.index)),
      versions_(std::move(parts.versions)),
      pin_slots_(ids_.pin_slots),
      ending_(ids_.pin_slots),
      lookup_(memory::index_reader(index_.tables), versions_, memory_, pin_slots_, memory::hint_reader(index_.hints)),
      grants_(memory_),
      socket_(options_.socket, std::move(parts.socket), ids_),
      spans_(socket_.descriptor()),
      channel_(memory_, std::move(parts.submit_bell), std::move(parts.complete_bell), socket_, reservations_,
               options_.check_interval),
      watch_(versions_, slabs_),
      device_(std::move(home)),
      copier_(device_ ? std::make_unique<device_copier>(device_) : nullptr) {
  use_choice(memory_.choice());
  if (!device_) return;
  memory_.header().device_writes.store(1, std::memory_order_seq_cst);
  maps_all_.store(true, std::memory_order_relaxed);
  slabs_.lie_on(device_, [this] { return look_after_slabs(); });
}

// ---------------------------------------------------------------------------------------------- checks

session::call_scope session::begin_call() noexcept {
  if (gate_ != nullptr) return call_scope(nullptr);
  active_.fetch_add(1, std::memory_order_seq_cst);
  return call_scope(&active_);
}

/// Beside close() itself, which is a call of the gate's, too.
bool session::other_calls() const noexcept {
  return gate_ != nullptr ? gate_->calls() > 1 : active_.load(std::memory_order_seq_cst) != 0;
}

result<session::call_scope> session::enter() {
  call_scope scope = begin_call();
  if (auto ok = channel_.check(); !ok) return std::unexpected(ok.error());
  if (closing_.load(std::memory_order_seq_cst)) return fail(error_code::closed, "the session is closed");
  if (copier_) {
    if (auto ok = copier_->check(); !ok) return std::unexpected(ok.error());
  }
  return scope;
}

result<session::call_scope> session::enter(key_batch keys, std::uint32_t group) {
  auto scope = enter();
  if (!scope) return scope;
  if (keys.count != 0 && (keys.width < min_key_bytes || keys.width > max_key_bytes)) {
    return fail(error_code::invalid_argument, "keys have " + count_of(keys.width, "bytes") + "; a key has " +
                                                  std::to_string(min_key_bytes) + " to " +
                                                  std::to_string(max_key_bytes));
  }
  if (keys.count != 0 && keys.data == nullptr) return fail(error_code::invalid_argument, "keys are a null pointer");
  if (keys.count > max_keys) {
    return fail(error_code::limit_exceeded,
                count_of(keys.count, "keys in one call; at most ") + std::to_string(max_keys));
  }
  if (group >= options_.spec.groups.size()) {
    return fail(error_code::invalid_argument, "group number " + std::to_string(group) + "; this instance has " +
                                                  count_of(options_.spec.groups.size(), "groups, counted from 0"));
  }
  return scope;
}

result<void> session::check_part(std::uint32_t group, maybe_part part) const {
  const group_spec& spec = group_at(group);
  if (!part || *part < spec.parts.size()) return {};
  return fail(error_code::invalid_argument, "part number " + std::to_string(*part) + "; group `" + spec.name +
                                                "` has " + count_of(spec.parts.size(), "parts, counted from 0"));
}

result<void> session::check_buffers(std::uint32_t group, maybe_part part, key_batch keys, const buffers& list) const {
  if (auto ok = check_part(group, part); !ok) return ok;
  if (list.size() != keys.count) {
    return fail(error_code::invalid_argument, count_of(list.size(), "buffers for ") + count_of(keys.count, "keys"));
  }
  const group_spec& spec = group_at(group);
  const std::uint64_t want = part ? spec.parts[*part].bytes : spec.block_bytes();
  for (std::size_t i = 0; i < list.size(); ++i) {
    const buffers::item item = list[i];
    if (item.bytes == want && item.data != nullptr) continue;
    const std::string what = part ? "part `" + spec.parts[*part].name + "` of group `" + spec.name + "`"
                                  : "a block of group `" + spec.name + "`";
    if (item.data == nullptr)
      return fail(error_code::invalid_argument, "buffer " + std::to_string(i) + " is a null pointer");
    return fail(error_code::invalid_argument, "buffer " + std::to_string(i) + " has " +
                                                  count_of(item.bytes, "bytes; ") + what + " has " +
                                                  std::to_string(want));
  }
  return {};
}

// ---------------------------------------------------------------------------------------------- slabs

std::byte* session::address(memory::block_ref block) const noexcept {
  const mapped_slab* slab = slabs_.find(block.slab());
  return slab == nullptr || block.block() >= slab->count ? nullptr : slab->block(block.block());
}

/// Says where pinned blocks are. False when the slab of one of them is not mapped yet.
bool session::describe(std::span<const memory::pin> pins, std::uint64_t bytes,
                       std::span<held_block> out) const noexcept {
  const mapped_slab* slab = nullptr;  // neighbours mostly share theirs
  for (std::size_t i = 0; i < pins.size(); ++i) {
    const memory::block_ref block = pins[i].block;
    if (slab == nullptr || slab->index != block.slab()) {
      slab = slabs_.find(block.slab());
      if (slab != nullptr) slab->hurry();
    }
    if (slab == nullptr || block.block() >= slab->count) return false;
    out[i] = {slab->block(block.block()), bytes, pins[i].slot};
  }
  return true;
}

/// After this, address() of each of `blocks` is known. The caller holds a pin, a grant or a reservation on them.
result<void> session::map_slabs(std::span<const memory::block_ref> blocks, time_point until) {
  std::vector<std::uint32_t> missing;  // allocates only when a slab is new
  std::uint32_t last = 0;
  for (const memory::block_ref block : blocks) {
    if (block.slab() == last) continue;
    last = block.slab();
    if (slabs_.find(last) == nullptr && std::ranges::find(missing, last) == missing.end()) missing.push_back(last);
  }
  if (!missing.empty()) {
    if (auto ok = fetch_slabs(missing, until); !ok) return ok;
  }
  for (const memory::block_ref block : blocks) {
    if (address(block) == nullptr) {
      return fail(error_code::malformed, "block " + std::to_string(block.block()) + " is not in slab " +
                                             std::to_string(block.slab()) + " as the node handed it out");
    }
    slabs_.find(block.slab())->hurry();
  }
  return {};
}

result<void> session::fetch_slabs(const std::vector<std::uint32_t>& missing, time_point until) {
  if (!maps_all_.load(std::memory_order_relaxed))
    drop_retired_slabs(retired_mappings);  // else the thread of slabs_ does
  for (;;) {
    auto fetched = socket_.fetch_slabs(missing, versions_, slabs_, until);
    if (fetched || fetched.error().code() != error_code::node_restarting) return fetched;
    if (steady_clock::now() >= until) return fetched;
    if (auto ok = channel_.recover(until); !ok) return ok;
  }
}

/// The node makes the next slab while half of this one is left: it is mapped then, not when a put waits for it. As many
/// slabs as were used up lately, and one more.
void session::look_ahead(std::span<const memory::block_ref> blocks) {
  const std::uint64_t now = coarse_milliseconds();
  uses_.add(blocks.size(), now);
  const mapped_slab* slab = slabs_.find(blocks.back().slab());
  if (slab == nullptr) return;
  const std::uint64_t recent = uses_.recent(now);
  if (maps_all_.load(std::memory_order_relaxed)) return slabs_.look_within(pause_of_looks(slab, recent));
  const auto ahead = static_cast<std::uint32_t>(std::min<std::uint64_t>(1 + recent / slab->count, most_slabs_ahead));
  std::vector<std::uint32_t> missing;
  for (std::uint32_t next = slab->index + 1; next <= slab->index + ahead; ++next) {
    if (next <= looked_at_.load(std::memory_order_relaxed)) continue;
    const memory::slab_entry* entry = versions_.slab(next);
    constexpr auto live = static_cast<std::uint32_t>(memory::slab_state::live);
    if (entry == nullptr || entry->state.load(std::memory_order_acquire) != live) break;
    looked_at_.store(next, std::memory_order_relaxed);
    if (slabs_.find(next) == nullptr) missing.push_back(next);
  }
  if (missing.empty()) return;
  slabs_.do_later(
      [this, missing] { (void)socket_.fetch_slabs(missing, versions_, slabs_, steady_clock::now() + fetch_patience); });
}

/// On the thread of slabs_, where a device works with them: what is retired goes, what is live comes, a few at a time.
/// How long until the next time.
std::chrono::nanoseconds session::look_after_slabs() {
  const auto now = steady_clock::now();
  if (now >= next_drop_) {
    drop_retired_slabs(0);
    next_drop_ = now + retired_slabs_stay;
  }
  if (closing_.load(std::memory_order_relaxed)) return longest_look;
  const auto missing = watch_.unmapped(slabs_a_look, now);
  if (missing.empty()) return pause_of_looks(slabs_.find(slabs_.latest()), uses_.recent(coarse_milliseconds()));
  return fetch_slabs(missing, now + fetch_patience) ? pause_of_batches : longest_look;
}

/// Of blocks that are about to be written.
void session::map_pages(std::span<const memory::block_ref> blocks) const noexcept {
  for (const memory::block_ref block : blocks) {
    if (const mapped_slab* slab = slabs_.find(block.slab())) slab->map_block(block.block());
  }
}

/// The memory of a retired slab is gone already; its mapping only costs address space, so there is no hurry. A retired
/// slab has no verified pin, no grant and no reservation; the pins are looked at all the same. Up to so many mapped
/// slabs nothing is done.
void session::drop_retired_slabs(std::size_t tolerated) {
  if (slabs_.size() < tolerated) return;
  if (unended_.load(std::memory_order_acquire) != 0) return;  // the device may still come to any of them
  std::vector<std::uint32_t> pinned;
  for (std::uint32_t i = 0; i < pin_slots_.high_water(); ++i) {
    const std::uint64_t bits = memory_.pin(i).load(std::memory_order_relaxed);
    if (bits != 0) pinned.push_back(memory::block_ref::from_bits(bits).slab());
  }
  for (const reservations::entry& entry : reservations_.all()) pinned.push_back(entry.block.slab());
  std::ranges::sort(pinned);
  slabs_.drop_if([&](std::uint32_t index) {
    const memory::slab_entry* entry = versions_.slab(index);
    if (entry == nullptr) return false;
    const auto state = entry->state.load(std::memory_order_acquire);
    return state == static_cast<std::uint32_t>(memory::slab_state::retired) &&
           !std::ranges::binary_search(pinned, index);
  });
}

// ---------------------------------------------------------------------------------------------- reading

result<match_result> session::match_prefix(key_batch keys, std::uint32_t group) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  const std::size_t prefix = lookup_.count_prefix(keys, group);
  const std::size_t reachable = lookup_.count_reachable(keys, group, prefix);
  memory_.header().lookups.add_match(keys.count, prefix);
  memory_.header().lookups.add_lower(reachable - prefix);
  return match_result{prefix, reachable};
}

bool session::asks_tiers() const noexcept {
  return memory_.header().asks_tiers.load(std::memory_order_relaxed) != 0;
}

/// The keys that are not reachable by what is known here go to the node, in pieces; several are under way at a time.
result<match_result> session::locate(key_batch keys, std::uint32_t group, std::chrono::nanoseconds patience) {
  auto found = match_prefix(keys, group);
  if (!found || patience <= std::chrono::nanoseconds(0) || !asks_tiers()) return found;
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  const time_point until = steady_clock::now() + std::min<std::chrono::nanoseconds>(patience, longest_locate);
  while (found->reachable < keys.count) {
    const std::size_t asked = std::min<std::size_t>(keys.count - found->reachable, locate_pieces * channel::max_batch);
    const std::size_t located = ask_reach({keys[found->reachable].data(), asked, keys.width}, group, until);
    found->reachable += located;
    memory_.header().lookups.add_lower(located);
    if (located < asked) break;
  }
  return found;
}

/// How many of the first keys some tier has, as far as is known at `until`. No error: what is not known is not there.
std::size_t session::ask_reach(key_batch keys, std::uint32_t group, time_point until) {
  struct piece {
    request_ptr request;
    std::size_t keys = 0;
  };
  const auto forget_from = [&](std::span<const piece> pieces) {
    for (const piece& each : pieces) channel_.forget(*each.request);
  };
  std::vector<piece> pieces;
  std::vector<memory::submission> batch;
  for (std::size_t first = 0; first < keys.count; first += channel::max_batch) {
    const std::size_t count = std::min(channel::max_batch, keys.count - first);
    batch.assign(count, {});
    for (std::size_t i = 0; i < count; ++i) {
      batch[i].op = memory::operation::locate;
      batch[i].group = static_cast<std::uint16_t>(group);
      batch[i].key_size = static_cast<std::uint8_t>(keys.width);
      std::memcpy(batch[i].key, keys[first + i].data(), keys.width);
    }
    const auto left = std::max<std::chrono::nanoseconds>(until - steady_clock::now(), {});
    batch.back().argument = static_cast<std::uint64_t>((left - left / part_for_the_way).count());
    auto sent = channel_.submit(batch, until);
    if (!sent) break;
    pieces.push_back({std::move(*sent), count});
  }
  std::size_t length = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto outcome = channel_.watch(*pieces[i].request, until);
    if (!outcome || !*outcome) {
      forget_from(std::span(pieces).subspan(i));
      return length;
    }
    const std::size_t here = (*outcome)->code == 0 ? std::min<std::size_t>((*outcome)->value, pieces[i].keys) : 0;
    length += here;
    if (here == pieces[i].keys) continue;
    forget_from(std::span(pieces).subspan(i + 1));
    break;
  }
  return length;
}

result<match_result> session::match_window(key_batch keys, std::uint32_t group, std::size_t window) {
  if (window == 0) return fail(error_code::invalid_argument, "a window has at least 1 block");
  const std::span<std::uint8_t> present = thread_scratch<std::uint8_t>(keys.count);
  if (auto ok = exists(keys, group, present); !ok) return std::unexpected(ok.error());
  const std::size_t resident = end_of_window(present, window);
  memory_.header().lookups.add_lower(lookup_.add_lower(keys, group, present));
  return match_result{resident, std::max(resident, end_of_window(present, window))};
}

result<void> session::exists(key_batch keys, std::uint32_t group, std::span<std::uint8_t> present) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  lookup_.find_each(keys, group, present);
  const auto found = static_cast<std::uint64_t>(std::ranges::count(present.first(keys.count), std::uint8_t{1}));
  memory_.header().lookups.add_match(keys.count, found);
  return {};
}

result<std::size_t> session::acquire(key_batch keys, std::uint32_t group, std::span<held_block> out) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  const std::span<memory::pin> pins = thread_scratch<memory::pin>(keys.count);
  const auto held = lookup_.pin_prefix(keys, group, pins);
  memory_.header().lookups.add_read(keys.count, held.value_or(0));
  if (!held) return held;
  const auto pinned = pins.first(*held);
  const std::uint64_t bytes = group_at(group).block_bytes();
  if (!describe(pinned, bytes, out)) {
    if (auto ok = map_slabs(blocks_of(pinned), deadline()); !ok) {
      lookup_.unpin(pinned);
      return std::unexpected(ok.error());
    }
    static_cast<void>(describe(pinned, bytes, out));
  }
  if (auto ok = channel_.still_valid(); !ok) {  // these pins protect nothing
    lookup_.unpin(pinned);
    return std::unexpected(ok.error());
  }
  touch(pinned, keys, group);
  counters_.blocks_pinned.fetch_add(*held, std::memory_order_relaxed);
  return *held;
}

// ---------------------------------------------------------------------------------------------- prefetch

namespace {

result<memory::prefetch_terms> terms_of(const prefetch_options& options) {
  for (const auto& time : {options.base, options.per_ki_token}) {
    if (!time || (*time >= milliseconds::zero() && *time <= memory::prefetch_terms::longest)) continue;
    return fail(error_code::invalid_argument, "a time of a prefetch is " + std::to_string(time->count()) + " ms" +
                                                  "; it must be 0 to " +
                                                  std::to_string(memory::prefetch_terms::longest.count()));
  }
  if (options.prefill_rate && *options.prefill_rate == ~std::uint64_t{0}) {
    return fail(error_code::invalid_argument, "the prefill rate is too large");
  }
  memory::prefetch_terms terms;
  terms.policy = options.policy;
  terms.hold = true;
  terms.base = options.base;
  terms.per_ki_token = options.per_ki_token;
  terms.prefill_rate = options.prefill_rate;
  terms.threshold_tokens = options.threshold_tokens;
  return terms;
}

}  // namespace

result<prefetch_ticket> session::prefetch(key_batch keys, std::uint32_t group, const prefetch_options& options) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  auto terms = terms_of(options);
  if (!terms) return std::unexpected(terms.error());
  do terms->chain = next_chain_.fetch_add(1, std::memory_order_relaxed);
  while (terms->chain == 0);
  prefetch_ticket ticket{.keys = {keys.data, keys.data + keys.count * keys.width},
                         .width = keys.width,
                         .group = group,
                         .epoch = channel_.epoch(),
                         .chain = terms->chain};
  begin_span(ticket, options);
  const time_point until = deadline();
  std::vector<memory::submission> batch;
  for (std::size_t first = 0; first < keys.count; first += channel::max_batch) {
    batch.clear();
    for (std::size_t i = first; i < std::min(first + channel::max_batch, keys.count); ++i) {
      memory::submission& entry = batch.emplace_back();
      entry.op = memory::operation::prefetch;
      entry.group = static_cast<std::uint16_t>(group);
      entry.key_size = static_cast<std::uint8_t>(keys.width);
      std::memcpy(entry.key, keys[i].data(), keys.width);
    }
    terms->more = first + channel::max_batch < keys.count;
    terms->pack(batch.back());
    auto sent = channel_.submit(batch, until);
    if (!sent) {
      drop(ticket);
      return std::unexpected(sent.error());
    }
    ticket.requests.push_back(std::move(*sent));
  }
  ticket.done = ticket.told = ticket.requests.empty();
  if (ticket.done) ticket.trace.reset();  // of no blocks
  return ticket;
}

namespace {

result<void> check_request(std::span<const std::byte> request, std::uint32_t group, const instance_spec& spec) {
  if (request.empty() || request.size() > handover::longest_request)
    return fail(error_code::invalid_argument,
                "a request's name has 1 to 64 bytes, this one " + std::to_string(request.size()));
  if (group >= spec.groups.size()) return fail(error_code::invalid_argument, "there is no group of that number");
  return {};
}

std::unexpected<error> refused_publication(error_code why) {
  if (why == error_code::limit_exceeded)
    return fail(why, "too many requests or keys are published; they live for 60 s after their last change");
  if (why == error_code::invalid_argument)
    return fail(why,
                "these are not the next keys of the request: it has others, or has ended, or the node's worker "
                "was replaced since it was published; publish from its first key on");
  return fail(why, "the node refused the publication");
}

}  // namespace

result<bool> session::wait(prefetch_ticket& ticket, time_point until) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  while (!ticket.done) {
    if (channel_.epoch() != ticket.epoch) {
      ticket.length = prefix_of(ticket);
      end_span(ticket, local::span_end::worker_replaced);
      drop(ticket);
      ticket.done = true;
      break;
    }
    if (ticket.requests.empty()) {  // of a request that is followed, the last question could not be asked
      if (auto asked = ask_for_keys(ticket); !asked) return std::unexpected(asked.error());
    }
    const auto now = steady_clock::now();
    const auto outcome = channel_.watch(*ticket.requests.front(), std::min(until, now + look_for_restart));
    if (!outcome) {
      // A worker that is on its way takes longer than one look.
      const bool comes_back = outcome.error().code() == error_code::node_restarting;
      if (!comes_back || steady_clock::now() >= until) return std::unexpected(outcome.error());
      std::this_thread::sleep_for(milliseconds(1));
      continue;
    }
    if (!*outcome) {
      if (steady_clock::now() >= until) return false;
      continue;
    }
    const request_ptr answered = ticket.requests.front();
    ticket.requests.erase(ticket.requests.begin());
    if ((*outcome)->code == 0 && ticket.follows) {
      take_keys(ticket, *answered);
      continue;
    }
    if ((*outcome)->code != 0) {
      end_span(ticket, local::span_end::refused, &**outcome);
      drop(ticket);
      ticket.done = true;
      if (static_cast<error_code>((*outcome)->code) == error_code::limit_exceeded) {
        return fail(error_code::limit_exceeded,
                    ticket.follows
                        ? "this session has too many prefetches that are not over or not freed, or the node that makes "
                          "the blocks is followed too much"
                        : "this session has too many prefetches that are not over or not freed");
      }
      if (ticket.follows && static_cast<error_code>((*outcome)->code) == error_code::closed) {
        return fail(error_code::closed,
                    "the request is no more: its instance was cleared, or nothing of it changed for 60 s; what came is "
                    "found by its keys as any other block");
      }
      if (static_cast<error_code>((*outcome)->code) == error_code::unsupported) {
        return fail(error_code::unsupported,
                    "this node follows no requests: it needs cluster.name, and for those of other nodes `peers` among "
                    "its remote.backends");
      }
      return fail(static_cast<error_code>((*outcome)->code), "the node refused the prefetch");
    }
    ticket.length = (*outcome)->value;
    ticket.done = ticket.requests.empty();
    if (ticket.done && ticket.length == 0) ticket.told = true;  // nothing is kept
    if (ticket.done) end_span(ticket, local::span_end::answered, &**outcome);
  }
  return true;
}

std::size_t session::prefix_of(const prefetch_ticket& ticket) {
  return ticket.keys.empty() ? 0 : lookup_.count_prefix(ticket.batch(), ticket.group);
}

result<std::size_t> session::progress(prefetch_ticket& ticket) {
  if (ticket.follows) {
    if (const auto looked = wait(ticket, time_point::min()); !looked) return std::unexpected(looked.error());
  }
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  return prefix_of(ticket);
}

result<std::uint64_t> session::publish(std::span<const std::byte> request, key_batch keys, std::uint32_t group,
                                       std::optional<std::uint64_t> first, bool ends) {
  const auto scope = keys.count == 0 ? enter() : enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  if (auto sane = check_request(request, group, options_.spec); !sane) return std::unexpected(sane.error());
  const time_point until = deadline();
  std::uint64_t published = 0;
  std::size_t done = 0;
  do {
    const std::size_t count = std::min(keys.count - done, channel::max_batch - 1);
    std::vector<memory::submission> batch(count + 1);
    for (std::size_t i = 0; i <= count; ++i) {
      memory::submission& entry = batch[i];
      entry.op = memory::operation::publish;
      entry.group = static_cast<std::uint16_t>(group);
      const std::span<const std::byte> bytes =
          i == 0 ? request : std::span<const std::byte>(keys[done + i - 1].data(), keys.width);
      entry.key_size = static_cast<std::uint8_t>(bytes.size());
      std::ranges::copy(bytes, entry.key);
    }
    batch.front().argument = first ? *first + done : memory::submission::no_place;
    batch.front().want = ends && done + count == keys.count ? 1 : 0;
    const auto answer = channel_.call(batch, until);
    if (!answer) return std::unexpected(answer.error());
    if (answer->code != 0) return refused_publication(static_cast<error_code>(answer->code));
    published = answer->value;
    if (!first) first = published - count;  // the rest goes behind these, or is refused where these are not known
    done += count;
  } while (done < keys.count);
  return published;
}

result<prefetch_ticket> session::follow(std::span<const std::byte> request, std::string_view node, std::uint32_t group,
                                        std::chrono::nanoseconds patience) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto sane = check_request(request, group, options_.spec); !sane) return std::unexpected(sane.error());
  if (node.size() > handover::longest_node)
    return fail(error_code::invalid_argument,
                "a node's name has at most 64 bytes, this one " + std::to_string(node.size()));
  prefetch_ticket ticket{.keys = {}, .group = group, .epoch = channel_.epoch(), .follows = true};
  do ticket.chain = next_chain_.fetch_add(1, std::memory_order_relaxed);
  while (ticket.chain == 0);
  std::array<memory::submission, 2> batch{};
  for (memory::submission& entry : batch) {
    entry.op = memory::operation::follow;
    entry.group = static_cast<std::uint16_t>(group);
    entry.grant_version = ticket.chain;
    entry.argument = static_cast<std::uint64_t>(std::max<std::int64_t>(patience.count(), 0));
  }
  batch[0].key_size = static_cast<std::uint8_t>(request.size());
  std::ranges::copy(request, batch[0].key);
  batch[1].key_size = static_cast<std::uint8_t>(node.size());
  std::ranges::copy(std::as_bytes(std::span(node)), batch[1].key);
  auto sent = channel_.submit(batch, deadline());
  if (!sent) return std::unexpected(sent.error());
  ticket.requests.push_back(std::move(*sent));
  return ticket;
}

/// Which keys come behind those that are known; the answer comes when there are some.
result<void> session::ask_for_keys(prefetch_ticket& ticket) {
  memory::submission entry;
  entry.op = memory::operation::follow;
  entry.group = static_cast<std::uint16_t>(ticket.group);
  entry.grant_version = ticket.chain;
  entry.argument = ticket.batch().count;
  auto sent = channel_.submit(std::span(&entry, 1), deadline());
  if (!sent) return std::unexpected(sent.error());
  ticket.requests.push_back(std::move(*sent));
  return {};
}

/// Of an answer that is done; see memory::handed_keys.
void session::take_keys(prefetch_ticket& ticket, const request& from) {
  const memory::completion& outcome = from.outcome;
  const std::size_t width = outcome.grant_version;
  const std::size_t count = std::min<std::size_t>(outcome.value, memory::handed_keys::most);
  const std::size_t pieces = memory::handed_keys::pieces_of(width);
  const bool is_sane = width >= min_key_bytes && width <= max_key_bytes && (ticket.width == 0 || ticket.width == width);
  if (count > 0 && is_sane) {
    ticket.width = width;
    for (std::size_t i = 0; i < count; ++i) {
      std::array<std::uint64_t, max_key_bytes / sizeof(std::uint64_t)> words{};
      for (std::size_t piece = 0; piece < pieces; ++piece) {
        const memory::completion& part = from.answers[i * pieces + piece];
        words[2 * piece] = part.block;
        words[2 * piece + 1] = part.value;
      }
      const auto bytes = std::as_bytes(std::span(words)).first(width);
      ticket.keys.insert(ticket.keys.end(), bytes.begin(), bytes.end());
    }
  }
  if (outcome.block == 0) return;
  ticket.done = true;
  ticket.length = std::min<std::uint64_t>(outcome.block - 1, ticket.batch().count);
}

/// A word about a prefetch; no answer is waited for.
result<void> session::tell(memory::operation what, const prefetch_ticket& ticket) {
  memory::submission entry;
  entry.op = what;
  entry.grant_version = ticket.chain;
  return channel_.post(std::span(&entry, 1), std::min(deadline(), steady_clock::now() + tell_patience));
}

result<void> session::stop(const prefetch_ticket& ticket) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (ticket.done) return {};
  return tell(memory::operation::stop_prefetch, ticket);
}

result<void> session::cancel(prefetch_ticket& ticket) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (!ticket.done) ticket.length = prefix_of(ticket);
  drop(ticket);
  ticket.done = true;
  return {};
}

void session::drop(prefetch_ticket& ticket) {
  if (in_child()) return;
  end_span(ticket, local::span_end::cancelled);
  for (const request_ptr& each : ticket.requests) channel_.forget(*each);
  ticket.requests.clear();
  // Should the word not arrive, the node ends it by its own limits.
  if (!std::exchange(ticket.told, true)) static_cast<void>(tell(memory::operation::end_prefetch, ticket));
}

result<void> session::release(std::span<const std::uint32_t> slots) {
  return release_slots(slots.size(), [&](std::size_t i) { return slots[i]; });
}

result<void> session::release(std::span<const held_block> held) {
  return release_slots(held.size(), [&](std::size_t i) { return held[i].slot; });
}

template <class SlotAt>
result<void> session::release_slots(std::size_t count, SlotAt&& slot_at) {
  if (in_child()) return channel_.check();
  const call_scope scope = begin_call();
  if (closing_.load(std::memory_order_seq_cst)) return {};  // close() ended all pins
  const std::span<std::uint32_t> slots = thread_scratch<std::uint32_t>(count);
  for (std::size_t i = 0; i < count; ++i) slots[i] = slot_at(i);
  if (auto ok = check_held(slots); !ok) return ok;
  lookup_.unpin_slots(slots);
  return {};
}

result<void> session::check_held(std::span<const std::uint32_t> slots) const {
  // Marks before pins: a mark goes when its pin has ended.
  const bool may_end = !ending_.empty();
  const std::uint32_t total = pin_slots_.total();
  const std::atomic<std::uint64_t>* const pins = &memory_.pin(0);
  for (const std::uint32_t slot : slots) {
    if (may_end && slot < total && ending_.has(slot)) return ends_already(slot);
    if (slot >= total || pins[slot].load(std::memory_order_relaxed) == 0) {
      return fail(error_code::invalid_argument, "pin " + std::to_string(slot) + " is not held; was it released twice?");
    }
  }
  return {};
}

result<void> session::ends_already(std::uint32_t slot) {
  return fail(error_code::invalid_argument,
              "pin " + std::to_string(slot) + " ends already when its stream comes there; was it released twice?");
}

result<std::size_t> session::get_into(key_batch keys, std::uint32_t group, maybe_part part, buffers targets) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_buffers(group, part, keys, targets); !ok) return std::unexpected(ok.error());
  use_choice(memory_.choice());  // the node may have measured again
  struct touched_pins;
  std::vector<memory::pin>& touched = thread_object<std::vector<memory::pin>, touched_pins>();
  touched.clear();
  std::size_t done = 0;
  for (;;) {
    const auto copied = copy_prefix(keys, group, part, targets, done, touched);
    if (!copied) return copied;
    done += *copied;
    if (*copied < std::min(copy_batch, keys.count - (done - *copied)) || done == keys.count) break;
  }
  touch(touched, keys, group);
  const std::uint64_t bytes = part ? group_at(group).parts[*part].bytes : group_at(group).block_bytes();
  memory_.header().lookups.add_read(keys.count, done);
  counters_.blocks_copied_out.fetch_add(done, std::memory_order_relaxed);
  counters_.bytes_copied_out.fetch_add(done * bytes, std::memory_order_relaxed);
  return done;
}

/// Pins, copies and unpins up to copy_batch keys from `first` on; returns how many were resident.
result<std::size_t> session::copy_prefix(key_batch keys, std::uint32_t group, maybe_part part, const buffers& targets,
                                         std::size_t first, std::vector<memory::pin>& touched) {
  std::array<memory::pin, copy_batch> pins;
  const std::size_t n = std::min(copy_batch, keys.count - first);
  const key_batch some{keys.data + first * keys.width, n, keys.width};
  const auto held = lookup_.pin_prefix(some, group, std::span(pins).first(n));
  if (!held) return held;
  const auto pinned = std::span(pins).first(*held);
  if (auto ok = map_slabs(blocks_of(pinned), deadline()); !ok) {
    lookup_.unpin(pinned);
    return std::unexpected(ok.error());
  }
  const std::uint64_t offset = part ? group_at(group).part_offset(*part) : 0;
  std::vector<copy_run> by_device;
  for (std::size_t i = 0; i < *held; ++i) {
    const buffers::item target = targets[first + i];
    const std::byte* const source = address(pinned[i].block) + offset;
    if (copier_) {
      by_device.push_back({target.data, source, target.bytes});
    } else {
      bulk_copy(target.data, source, target.bytes, copy_direction::from_blocks);
    }
    touched.push_back(pinned[i]);
  }
  if (!by_device.empty()) {
    if (auto ok = read_from_home(by_device, pinned); !ok) return std::unexpected(ok.error());
  }
  const auto valid = channel_.still_valid();
  lookup_.unpin(pinned);
  if (!valid) return std::unexpected(valid.error());
  return *held;
}

/// Tells the node what was used, from the head of the chain to its tail, as runs of neighbouring blocks; and what was
/// asked for and missing, since that says as much about the request.
void session::touch(std::span<const memory::pin> pins, key_batch keys, std::uint32_t group) {
  struct touch_entries;
  std::vector<memory::submission>& entries = thread_object<std::vector<memory::submission>, touch_entries>();
  entries.clear();
  memory::submission blank;
  blank.group = static_cast<std::uint16_t>(group);
  blank.argument = coarse_milliseconds();
  blank.want = pins.size();
  append_runs(pins, blank, entries);
  if (entries.size() < max_touch_entries) append_asked(keys, pins.size(), blank, entries);
  if (!entries.empty()) channel_.touch(std::span(entries).first(std::min(entries.size(), max_touch_entries)));
}

// ---------------------------------------------------------------------------------------------- the rest

result<session_stats> session::stats() const {
  if (in_child()) return fail(error_code::forked, "this session belongs to the parent process");
  session_stats out;
  const memory::lookup_counts lookups = memory_.header().lookups.load();
  out.keys_looked_up = lookups.match_keys + lookups.read_keys;
  out.keys_found = lookups.match_resident + lookups.read_resident;
  out.blocks_pinned = counters_.blocks_pinned.load(std::memory_order_relaxed);
  out.blocks_copied_out = counters_.blocks_copied_out.load(std::memory_order_relaxed);
  out.bytes_copied_out = counters_.bytes_copied_out.load(std::memory_order_relaxed);
  out.blocks_stored = counters_.blocks_stored.load(std::memory_order_relaxed);
  out.bytes_copied_in = counters_.bytes_copied_in.load(std::memory_order_relaxed);
  out.pins_in_use = pin_slots_.in_use();
  out.pin_slots = pin_slots_.total();
  out.reservations = reservations_.size();
  out.slabs_mapped = slabs_.size();
  out.touches_dropped = memory_.header().touches_dropped.load(std::memory_order_relaxed);
  out.reattaches = channel_.reattaches();
  out.session = ids_.session;
  const auto registered = slabs_.registered();
  out.slabs_registered = registered.slabs;
  out.slabs_refused = registered.refused;
  out.waiting_for_device = events_.pending();
  out.bytes_registered = registered.bytes;
  out.registration_ns = static_cast<std::uint64_t>(registered.time.count());
  return out;
}

result<void> session::close() {
  if (in_child()) return channel_.check();
  if (closing_.exchange(true, std::memory_order_seq_cst)) return {};
  if (auto idle = events_.wait_for_device(steady_clock::now() + close_patience); !idle) return idle;
  (void)events_.drain(steady_clock::now() + close_patience);  // commits that no node answers are given up
  const bool alive = channel_.check().has_value();
  if (alive) static_cast<void>(flush_all(steady_clock::now() + close_patience));
  if (copier_) copier_->stop();
  channel_.stop();  // wakes calls that still wait; new ones are refused since closing_
  // Sequentially consistent, as in enter(): a call is counted here, or it finds closing_ set.
  while (other_calls()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  // Of calls that gave up while this waited.
  if (auto idle = events_.wait_for_device(steady_clock::now() + close_patience); !idle) return idle;
  (void)events_.drain(steady_clock::now() + close_patience);
  for (std::uint32_t i = 0; i < pin_slots_.high_water(); ++i) memory_.pin(i).store(0, std::memory_order_release);
  // Who holds no reservation, and gave up no put, has nothing that a device could write.
  if (reservations_.size() == 0 && may_be_written_.load(std::memory_order_acquire) == 0) {
    memory_.header().device_writes.store(0, std::memory_order_release);
  }
  if (alive) spans_.flush();
  // For the next worker, where none lives to answer now.
  memory_.header().departure.store(1, std::memory_order_release);
  if (alive) static_cast<void>(leave_node());
  return {};
}

/// No pin is held and no block is written any more: the node takes back grants and reservations.
result<void> session::leave_node() {
  const time_point until = steady_clock::now() + close_patience;
  const std::atomic<bool> given_up{false};
  while (true) {  // a worker may die of every answer
    auto left = socket_.detach(until);
    if (left || left.error().code() != error_code::node_restarting) return left;
    if (auto met = socket_.reattach({}, until, given_up); !met) return met;
  }
}

}  // namespace cenote::client
