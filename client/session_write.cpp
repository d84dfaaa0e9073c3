// The writing half of a session: put, reserve, commit, remove.
#include <algorithm>
#include <bit>
#include <cstring>

#include "client/session.hpp"
#include "core/bulk_copy.hpp"
#include "core/checksum.hpp"
#include "core/running_checksum.hpp"

namespace cenote::client {

namespace {

using memory::completion_kind;
using memory::operation;
using memory::submission;

constexpr std::size_t put_batch = 64;  // blocks filled between two answers
constexpr std::uint64_t put_batch_bytes = std::uint64_t{64} << 20;
constexpr std::uint64_t spare_grant_bytes = std::uint64_t{16} << 20;  // kept for the next put
constexpr int rollback_retries = 8;                                   // worker restarts that one put survives
constexpr int grant_attempts = 256;  // other threads of the session may take what the node gave us
constexpr std::size_t async_limit = 64;
constexpr std::uint64_t async_grants = 4 * put_batch;  // kept for the next put_async

submission entry_for(operation what, std::uint32_t group) {
  submission entry;
  entry.op = what;
  entry.group = static_cast<std::uint16_t>(group);
  return entry;
}

/// One entry for each block that the caller may write.
std::vector<submission> entries_of(std::span<const reserved_block> blocks, operation what) {
  std::vector<submission> entries;
  for (const reserved_block& block : blocks) {
    if (block.state != reserve_state::writable) continue;
    submission& entry = entries.emplace_back(entry_for(what, block.group));
    entry.block = block.block;
    entry.grant_version = block.grant_version;
    entry.argument = block.parts;
  }
  return entries;
}

void set_key(submission& entry, std::span<const std::byte> key) noexcept {
  entry.key_size = static_cast<std::uint8_t>(key.size());
  std::memcpy(entry.key, key.data(), key.size());
}

/// Fills a block and gives the XXH3-64 of its bytes, which are read from memory once.
std::uint64_t copy_and_sum(std::byte* block, const buffers::item& source) noexcept {
  running_checksum sum;
  sum.copy(block, {source.data, source.bytes});
  return sum.value();
}

/// What a refusal of the node means for the caller.
error refusal(std::uint16_t code) {
  switch (static_cast<error_code>(code)) {
    case error_code::no_space:
      return {error_code::no_space, "nothing can be evicted: all is pinned, pending or over the group's quota"};
    case error_code::revoked:
      return {error_code::revoked,
              "the reservation was taken back (the node restarted, or the key was given to others); reserve again"};
    case error_code::not_reserved:
      return {error_code::not_reserved, "this session does not hold that block; was it committed twice?"};
    case error_code::limit_exceeded:
      return {
          error_code::limit_exceeded,
          "the group's kept blocks have used up groups.<name>.keep_quota, those of its user in the account `default` "
          "limits.user_keep_share of it, or those of all groups limits.keep_share"};
    case error_code::session_killed: return {error_code::session_killed, "this session was ended"};
    case error_code::removal_pending:
      return {
          error_code::removal_pending,
          "removed and not served here any more, but a tier below DRAM has not written that down, or another node or "
          "a server has not confirmed it, so that blocks may be served again; `cenote status --json` shows it "
          "(nvme.paths[].pending_removals, remote.backends[].unconfirmed)"};
    case error_code::ok: break;
    default: return {static_cast<error_code>(code), "the node refused the batch"};
  }
  return {error_code::internal, "the node refused without a reason"};
}

bool was_rolled_back(error_code code) noexcept {
  return code == error_code::revoked || code == error_code::not_reserved;
}

}  // namespace

/// A put under way: what is left to store, in the order of the batch.
struct session::put_job {
  key_batch keys;
  std::uint32_t group = 0;
  maybe_part part;
  const buffers* sources = nullptr;
  bool wait = true;
  std::vector<std::uint32_t> left;  ///< positions in `keys`
  std::size_t next = 0;             ///< in `left`
  std::uint64_t stored = 0;
  std::uint64_t used = 0;  ///< grants this put has filled
  int retries = 0;
};

// ---------------------------------------------------------------------------------------------- put

put_report session::put(key_batch keys, std::uint32_t group, maybe_part part, buffers sources) {
  return put_any(keys, group, part, sources, true);
}

put_report session::put_async(key_batch keys, std::uint32_t group, maybe_part part, buffers sources) {
  return put_any(keys, group, part, sources, false);
}

put_report session::put_any(key_batch keys, std::uint32_t group, maybe_part part, const buffers& sources, bool wait) {
  const auto scope = enter(keys, group);
  if (!scope) return {0, std::unexpected(scope.error())};
  if (auto ok = check_buffers(group, part, keys, sources); !ok) return {0, std::unexpected(ok.error())};
  if (part && group_at(group).parts.size() == 1) part.reset();  // the only part is the block
  use_choice(memory_.choice());                                 // the node may have measured again
  put_job job{.keys = keys,
              .group = group,
              .part = part,
              .sources = &sources,
              .wait = wait,
              .left = missing_keys(keys, group, 0)};
  while (job.next < job.left.size()) {
    const std::size_t failed_at = job.next;
    if (auto ok = put_step(job); !ok) {
      const std::size_t first_missing = job.left[std::max(failed_at, job.next)];
      return {first_missing, std::unexpected(ok.error())};
    }
  }
  return {job.stored, {}};
}

/// Stores the next batch of what is left, or finds out again what is left after a restart rolled it back.
result<void> session::put_step(put_job& job) {
  const std::uint64_t fitting = std::max<std::uint64_t>(1, put_batch_bytes / group_at(job.group).stride());
  const std::size_t n = std::min({put_batch, static_cast<std::size_t>(fitting), job.left.size() - job.next});
  const auto places = std::span<const std::uint32_t>(job.left).subspan(job.next, n);
  auto done = job.part ? put_part(job, places) : put_whole(job, places);
  if (done || !was_rolled_back(done.error().code()) || ++job.retries > rollback_retries) return done;
  job.left = missing_keys(job.keys, job.group, job.left[job.next]);
  job.next = 0;
  return {};
}

/// Positions, from `first` on, of keys that are not present; of equal keys only the first.
std::vector<std::uint32_t> session::missing_keys(key_batch keys, std::uint32_t group, std::size_t first) const {
  const key_batch rest{keys.data + first * keys.width, keys.count - first, keys.width};
  std::vector<std::uint8_t> present(rest.count);
  lookup_.find_each(rest, group, present);
  std::vector<std::uint32_t> seen(std::bit_ceil(rest.count * 2 + 1), 0);  // open addressing: position + 1
  const std::size_t mask = seen.size() - 1;
  std::vector<std::uint32_t> missing;
  for (std::size_t i = 0; i < rest.count; ++i) {
    if (present[i] != 0) continue;
    std::size_t slot = reduce_key(rest[i], group).lo >> 1 & mask;
    while (seen[slot] != 0 && std::memcmp(rest[seen[slot] - 1].data(), rest[i].data(), keys.width) != 0) {
      slot = (slot + 1) & mask;
    }
    if (seen[slot] != 0) continue;
    seen[slot] = static_cast<std::uint32_t>(i + 1);
    missing.push_back(static_cast<std::uint32_t>(first + i));
  }
  return missing;
}

/// Takes at least one grant, asking the node when there are too few. no_space when none can be had.
result<void> session::take_grants(std::uint32_t group, std::size_t wanted, std::vector<grant>& out) {
  const slab_map* registered = !copier_ && maps_all_.load(std::memory_order_relaxed) ? &slabs_ : nullptr;
  grants_.take(group, wanted, out, grant_pool::slots::used, registered);
  for (int attempt = 0; out.size() < wanted && attempt < grant_attempts; ++attempt) {
    submission ask = entry_for(operation::grant, group);
    ask.argument = wanted - out.size();
    const auto outcome = channel_.call(std::span(&ask, 1), deadline());
    if (!outcome) {
      give_back(out);
      return std::unexpected(outcome.error());
    }
    grants_.take(group, wanted - out.size(), out, grant_pool::slots::all, registered);
    if (!out.empty()) break;
    if (outcome->code != 0) return std::unexpected(refusal(outcome->code));
    if (outcome->value == 0) return std::unexpected(refusal(static_cast<std::uint16_t>(error_code::no_space)));
  }
  if (out.empty()) return std::unexpected(refusal(static_cast<std::uint16_t>(error_code::no_space)));
  return {};
}

void session::give_back(std::span<const grant> grants) {
  std::vector<submission> entries;
  for (const grant& held : grants) {
    submission& entry = entries.emplace_back(entry_for(operation::release, 0));
    entry.block = held.block.bits;
    entry.grant_version = held.version;
  }
  if (entries.empty()) return;
  // Never more than a put's batch.
  if (!channel_.post(entries, deadline())) channel_.release_later(entries);
}

/// In exchange for a commit: what this put still needs, or, at its end, a few for the next one of its kind. Nothing is
/// evicted for the latter, or a put into a full pool would cost the very blocks that it stored.
void session::ask_for_grants(const put_job& job, std::size_t used, submission& last) const noexcept {
  const std::size_t still = job.left.size() - job.next - used;
  const std::uint64_t spare = std::max<std::uint64_t>(1, spare_grant_bytes / group_at(job.group).stride());
  // Who does not wait comes back before this is answered.
  const std::uint64_t next = job.wait ? std::min<std::uint64_t>(put_batch, job.used + used) : async_grants;
  const std::uint64_t target = still != 0 ? std::min<std::uint64_t>(put_batch, still) : std::min(spare, next);
  const std::uint64_t have = grants_.available(job.group, target);
  last.want = target > have ? target - have : 0;
  last.argument = still == 0 ? submission::spare_grants : 0;
}

/// Fills granted blocks and commits them.
result<void> session::put_whole(put_job& job, std::span<const std::uint32_t> places) {
  std::vector<grant> grants;
  grants.reserve(places.size());
  if (auto ok = take_grants(job.group, places.size(), grants); !ok) return ok;
  std::vector<memory::block_ref> blocks;
  blocks.reserve(grants.size());
  for (const grant& held : grants) blocks.push_back(held.block);
  if (auto ok = map_slabs(blocks, deadline()); !ok) {
    give_back(grants);
    return ok;
  }
  look_ahead(blocks);
  map_pages(blocks);
  // Of the bytes that the tier below writes, padding included: it would have to read them from memory again.
  const bool sums = memory_.header().wants_checksums.load(std::memory_order_relaxed) != 0 &&
                    group_at(job.group).stride() == group_at(job.group).block_bytes();
  std::vector<submission> batch;
  batch.reserve(grants.size());
  std::vector<copy_run> by_device;
  for (std::size_t i = 0; i < grants.size(); ++i) {
    const buffers::item source = (*job.sources)[places[i]];
    submission& entry = batch.emplace_back(entry_for(operation::commit, job.group));
    if (sums) entry.flags = submission::flag_checksum;
    std::byte* const target = address(grants[i].block);
    if (copier_) {
      if (sums) entry.detail = checksum_of(source.data, source.bytes);
      by_device.push_back({target, source.data, source.bytes});
    } else if (sums) {
      entry.detail = copy_and_sum(target, source);
    } else {
      bulk_copy(target, source.data, source.bytes, copy_direction::to_blocks);
    }
    entry.block = grants[i].block.bits;
    entry.grant_version = grants[i].version;
    set_key(entry, job.keys[places[i]]);
    if (i == 0 && places[i] > 0) entry.parent = reduce_key(job.keys[places[i] - 1], job.group).lo;
  }
  if (copier_) {
    if (auto ok = write_to_home(by_device, [this, grants] { give_back(grants); }); !ok) return ok;
  }
  ask_for_grants(job, grants.size(), batch.back());
  job.used += grants.size();
  counters_.bytes_copied_in.fetch_add(grants.size() * group_at(job.group).block_bytes(), std::memory_order_relaxed);
  return conclude(job, batch);
}

/// Reserves, fills one part of each block that is ours, and says so.
result<void> session::put_part(put_job& job, std::span<const std::uint32_t> places) {
  const std::uint64_t mask = std::uint64_t{1} << *job.part;
  const std::uint64_t offset = group_at(job.group).part_offset(*job.part);
  auto answers = ask_reservations(job.keys, job.group, mask, places);
  if (!answers) return std::unexpected(answers.error());
  const auto refused = std::ranges::find(*answers, completion_kind::refused, &memory::completion::kind);
  const auto usable = static_cast<std::size_t>(refused - answers->begin());
  give_back(std::span<const memory::completion>(*answers).subspan(usable), mask);

  std::vector<submission> batch;
  std::vector<copy_run> by_device;
  for (std::size_t i = 0; i < usable; ++i) {
    const memory::completion& answer = (*answers)[i];
    if (answer.kind != completion_kind::reserved) continue;
    const auto block = memory::block_ref::from_bits(answer.block);
    const buffers::item source = (*job.sources)[places[i]];
    if (copier_) {
      by_device.push_back({address(block) + offset, source.data, source.bytes});
    } else {
      bulk_copy(address(block) + offset, source.data, source.bytes, copy_direction::to_blocks);
    }
    submission& entry = batch.emplace_back(entry_for(operation::finish, job.group));
    entry.block = answer.block;
    entry.grant_version = answer.grant_version;
    entry.argument = mask;
  }
  if (!by_device.empty()) {
    const std::vector<memory::completion> ours(answers->begin(),
                                               answers->begin() + static_cast<std::ptrdiff_t>(usable));
    if (auto ok = write_to_home(by_device, [this, ours, mask] { give_back(ours, mask); }); !ok) return ok;
  }
  counters_.bytes_copied_in.fetch_add(batch.size() * group_at(job.group).parts[*job.part].bytes,
                                      std::memory_order_relaxed);
  if (!batch.empty()) {
    const std::size_t before = job.next;
    if (auto ok = conclude(job, batch); !ok) return ok;
    job.next = before;
  }
  job.next += usable;
  if (usable < answers->size()) return std::unexpected(refusal(refused->code));
  return {};
}

/// Sends the commits or finishes of a put and counts what they stored.
result<void> session::conclude(put_job& job, std::vector<submission>& batch) {
  const time_point until = deadline();
  const bool parts = batch.front().op == operation::finish;
  auto sent = channel_.submit(batch, until);
  if (!sent) {  // nobody else would ever give these blocks back
    for (submission& entry : batch) {
      entry.op = operation::release;
      entry.flags = 0;
      if (!parts) entry.argument = 0;
    }
    channel_.release_later(batch);
    return std::unexpected(sent.error());
  }
  if (parts) {
    for (const submission& entry : batch) {
      reservations_.remove(memory::block_ref::from_bits(entry.block), entry.grant_version, entry.argument);
    }
  }
  if (!job.wait) {
    job.next += batch.size();
    job.stored += batch.size();
    remember_async(std::move(*sent), until);
    return {};
  }
  const auto outcome = channel_.wait(**sent, until);
  if (!outcome) return std::unexpected(outcome.error());
  // Of parts the caller wants those that it stored, not the blocks that they completed.
  const std::uint64_t stored = parts ? (outcome->code == 0 ? batch.size() : outcome->index) : outcome->value;
  job.stored += stored;
  counters_.blocks_stored.fetch_add(stored, std::memory_order_relaxed);
  if (outcome->code != 0) {
    if (!parts) job.next += std::min<std::size_t>(outcome->index, batch.size() - 1);
    return std::unexpected(refusal(outcome->code));
  }
  job.next += batch.size();
  return {};
}

// ---------------------------------------------------------------------------------------------- put_async, flush

void session::remember_async(request_ptr batch, time_point until) {
  {
    const std::lock_guard lock(async_mutex_);
    async_.push_back(std::move(batch));
  }
  const std::unique_lock<deadline_mutex> turn(async_turn_, until);
  if (!turn.owns_lock()) return;  // who has the turn collects, or flush() does
  std::unique_lock lock(async_mutex_);
  while (!async_.empty()) {
    if (const auto outcome = channel_.poll(*async_.front())) {
      collect_async(*outcome);
      async_.pop_front();
    } else if (async_.size() > async_limit) {
      await_oldest_async(lock, until);
    } else {
      break;
    }
  }
}

/// With async_turn_ held: only its holder takes batches away. `lock` holds async_mutex_, but not while this waits.
void session::await_oldest_async(std::unique_lock<std::mutex>& lock, time_point until) {
  const request_ptr oldest = async_.front();
  lock.unlock();
  const auto outcome = channel_.wait(*oldest, until);
  lock.lock();
  collect_async(outcome);
  async_.pop_front();
}

// With async_mutex_ held: what flush() will say.

void session::note_async(const result<std::uint64_t>& stored) {
  if (stored) {
    async_stored_ += *stored;
  } else if (!async_failure_) {
    async_failure_ = stored.error();
  }
}

void session::collect_async(const result<memory::completion>& outcome) {
  if (!outcome) return note_async(std::unexpected(outcome.error()));
  counters_.blocks_stored.fetch_add(outcome->value, std::memory_order_relaxed);
  note_async(outcome->value);  // of a batch that was refused in the middle, too
  if (outcome->code != 0) note_async(std::unexpected(refusal(outcome->code)));
}

result<std::uint64_t> session::flush_all(time_point until) {
  const std::unique_lock<deadline_mutex> turn(async_turn_, until);
  if (!turn.owns_lock()) {
    return fail(error_code::deadline_exceeded,
                "another call of this session waited for what was put until the deadline");
  }
  std::unique_lock lock(async_mutex_);
  for (std::size_t left = async_.size(); left > 0; --left) await_oldest_async(lock, until);
  const auto failure = std::exchange(async_failure_, std::nullopt);
  const std::uint64_t stored = std::exchange(async_stored_, 0);
  if (failure) return std::unexpected(*failure);
  return stored;
}

result<std::uint64_t> session::flush() {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto idle = events_.drain(deadline()); !idle) return std::unexpected(idle.error());
  return flush_all(deadline());
}

// ---------------------------------------------------------------------------------------------- reserve, commit

/// One answer for each place; what is reserved is mapped.
result<std::vector<memory::completion>> session::ask_reservations(key_batch keys, std::uint32_t group,
                                                                  std::uint64_t parts,
                                                                  std::span<const std::uint32_t> places) {
  if (!reservations_.admit(places.size())) {
    return fail(error_code::limit_exceeded, "a session holds at most " + std::to_string(reservations::limit) +
                                                " reservations; commit or release some");
  }
  auto answers = ask_admitted(keys, group, parts, places);
  reservations_.settle(places.size());
  return answers;
}

result<std::vector<memory::completion>> session::ask_admitted(key_batch keys, std::uint32_t group, std::uint64_t parts,
                                                              std::span<const std::uint32_t> places) {
  const time_point until = deadline();
  std::vector<submission> batch;
  for (const std::uint32_t place : places) {
    submission& entry = batch.emplace_back(entry_for(operation::reserve, group));
    entry.argument = parts;
    set_key(entry, keys[place]);
  }
  auto sent = channel_.submit(batch, until);
  if (!sent) return std::unexpected(sent.error());
  const auto outcome = channel_.wait(**sent, until);
  if (!outcome) return std::unexpected(outcome.error());
  std::vector<memory::completion> answers = std::move((*sent)->answers);
  std::vector<memory::block_ref> blocks;
  for (memory::completion& answer : answers) {
    if (answer.kind == completion_kind::reserved) blocks.push_back(memory::block_ref::from_bits(answer.block));
    if (answer.kind != completion_kind{}) continue;
    answer.kind = completion_kind::refused;  // the node left it out: it says why at the end of the batch
    answer.code = outcome->code != 0 ? outcome->code : static_cast<std::uint16_t>(error_code::internal);
  }
  if (auto ok = map_slabs(blocks, until); !ok) {
    give_back(answers, parts);
    return std::unexpected(ok.error());
  }
  if (!blocks.empty()) look_ahead(blocks);
  map_pages(blocks);
  return answers;
}

void session::give_back(std::span<const memory::completion> reserved, std::uint64_t parts) {
  std::vector<submission> entries;
  for (const memory::completion& answer : reserved) {
    if (answer.kind != completion_kind::reserved) continue;
    submission& entry = entries.emplace_back(entry_for(operation::release, 0));
    entry.block = answer.block;
    entry.grant_version = answer.grant_version;
    entry.argument = parts;
  }
  // What was sent after all is released twice: the second word ends nothing.
  if (!send_in_batches(entries)) channel_.release_later(entries);
}

/// Sends entries of one kind and waits; the sum of what took effect, or the first refusal after all were sent.
result<std::uint64_t> session::send_in_batches(std::span<submission> entries) {
  const time_point until = deadline();
  std::uint64_t total = 0;
  std::optional<error> refused;
  while (!entries.empty()) {
    const auto batch = entries.first(std::min(entries.size(), channel::max_batch));
    entries = entries.subspan(batch.size());
    auto sent = channel_.submit(batch, until);
    if (!sent) return std::unexpected(sent.error());
    const auto outcome = channel_.wait(**sent, until);
    // This side writes these blocks no more, whatever the worker says. Not sooner: a worker that meets this session
    // again before it reads the batch could not tell a block that it took back from one that was never reserved.
    for (const submission& entry : batch) {
      reservations_.remove(memory::block_ref::from_bits(entry.block), entry.grant_version, entry.argument);
    }
    if (!outcome) return std::unexpected(outcome.error());
    total += outcome->value;
    if (outcome->code != 0 && !refused) {
      refused = refusal(outcome->code).in("entry " + std::to_string(outcome->index) + " of the batch");
    }
  }
  if (refused && refused->code() == error_code::removal_pending) return std::unexpected(counted(*refused, until));
  if (refused) return std::unexpected(*refused);
  return total;
}

/// Adds to a pending removal how many wait, if the node answers in time.
error session::counted(const error& pending, time_point end) {
  const auto waiting = socket_.ask_unconfirmed(end);
  if (!waiting) return pending;
  return {error_code::removal_pending, std::to_string(waiting->removals) +
                                           " removals or clears of the instance wait for " +
                                           std::to_string(waiting->nodes) + " nodes or servers: " + pending.message()};
}

result<void> session::reserve(key_batch keys, std::uint32_t group, maybe_part part, std::span<reserved_block> out) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_part(group, part); !ok) return ok;
  const std::uint64_t mask = part ? std::uint64_t{1} << *part : group_at(group).all_parts();
  const std::uint64_t bytes = group_at(group).block_bytes();
  std::vector<memory::completion> all;
  for (std::size_t first = 0; first < keys.count; first += channel::max_batch) {
    std::vector<std::uint32_t> places(std::min(channel::max_batch, keys.count - first));
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::uint32_t>(first + i);
    auto answers = ask_reservations(keys, group, mask, places);
    if (!answers) {
      give_back(all, mask);
      return std::unexpected(answers.error());
    }
    all.insert(all.end(), answers->begin(), answers->end());
    const auto refused = std::ranges::find(*answers, completion_kind::refused, &memory::completion::kind);
    if (refused == answers->end()) continue;
    give_back(all, mask);
    return std::unexpected(refusal(refused->code));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto block = memory::block_ref::from_bits(all[i].block);
    out[i] = {.data = nullptr,
              .bytes = bytes,
              .block = all[i].block,
              .parts = mask,
              .grant_version = all[i].grant_version,
              .group = group,
              .state = reserve_state::pending};
    if (all[i].kind == completion_kind::present) out[i].state = reserve_state::present;
    if (all[i].kind != completion_kind::reserved) continue;
    out[i].state = reserve_state::writable;
    out[i].data = address(block);
  }
  return {};
}

result<std::uint64_t> session::commit(std::span<const reserved_block> blocks) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  return finish_parts(blocks);
}

result<std::uint64_t> session::finish_parts(std::span<const reserved_block> blocks) {
  auto entries = entries_of(blocks, operation::finish);
  const auto completed = send_in_batches(entries);
  if (completed) counters_.blocks_stored.fetch_add(*completed, std::memory_order_relaxed);
  return completed;
}

result<void> session::release(std::span<const reserved_block> blocks) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  auto entries = entries_of(blocks, operation::release);
  const auto released = send_in_batches(entries);
  return released ? result<void>{} : std::unexpected(released.error());
}

// ---------------------------------------------------------------------------------------------- remove, clear

result<std::uint64_t> session::remove(key_batch keys, std::uint32_t group) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  std::vector<submission> entries;
  entries.reserve(keys.count);
  for (std::size_t i = 0; i < keys.count; ++i) {
    set_key(entries.emplace_back(entry_for(operation::remove, group)), keys[i]);
  }
  return send_in_batches(entries);
}

result<std::uint64_t> session::keep(key_batch keys, std::uint32_t group, bool kept) {
  const auto scope = enter(keys, group);
  if (!scope) return std::unexpected(scope.error());
  std::vector<submission> entries;
  entries.reserve(keys.count);
  for (std::size_t i = 0; i < keys.count; ++i) {
    submission& entry = entries.emplace_back(entry_for(operation::keep, group));
    set_key(entry, keys[i]);
    entry.argument = kept ? 1 : 0;
  }
  return send_in_batches(entries);
}

result<void> session::clear() {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  submission entry = entry_for(operation::clear, 0);
  const auto done = send_in_batches(std::span(&entry, 1));
  return done ? result<void>{} : std::unexpected(done.error());
}

result<local::unconfirmed_reply> session::unconfirmed() {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  const time_point until = deadline();
  for (;;) {
    auto answer = socket_.ask_unconfirmed(until);
    const bool is_over = answer || answer.error().code() != error_code::node_restarting;
    if (is_over || std::chrono::steady_clock::now() >= until) return answer;
    if (auto back = channel_.recover(until); !back) return std::unexpected(back.error());
  }
}

result<void> session::barrier() {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  submission entry = entry_for(operation::barrier, 0);
  const auto done = send_in_batches(std::span(&entry, 1));
  return done ? result<void>{} : std::unexpected(done.error());
}

}  // namespace cenote::client
