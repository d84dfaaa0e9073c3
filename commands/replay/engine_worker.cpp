#include "commands/replay/engine_worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "core/bulk_copy.hpp"

namespace cenote::replay {

namespace {

constexpr std::uint64_t chunk_bytes = std::uint64_t{8} << 20;
constexpr std::size_t most_in_chunk = 64;
constexpr std::uint64_t window_bytes = std::uint64_t{64} << 20;

std::uint64_t thread_cpu() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t nanoseconds(std::chrono::nanoseconds time) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
}

/// Adds the thread's processor time of a scope to a counter.
class cpu_scope {
 public:
  explicit cpu_scope(tally_word& into) noexcept : into_(into), before_(thread_cpu()) {}
  cpu_scope(const cpu_scope&) = delete;
  cpu_scope& operator=(const cpu_scope&) = delete;
  ~cpu_scope() { into_.add(thread_cpu() - before_); }

 private:
  tally_word& into_;
  std::uint64_t before_;
};

}  // namespace

bool leaves_session_usable(error_code code) noexcept {
  switch (code) {
    case error_code::node_restarting:
    case error_code::deadline_exceeded:
    case error_code::no_space:
    case error_code::pin_limit:
    case error_code::limit_exceeded:
    case error_code::revoked:
    case error_code::not_reserved: return true;
    default: return false;
  }
}

engine_worker::engine_worker(const shared_plan& plan, std::uint32_t engine, std::uint32_t number,
                             std::uint64_t corrupt_every)
    : plan_(plan),
      settings_(plan.settings()),
      engine_(plan.engine(engine)),
      done_(plan.worker(engine, number)),
      node_(settings_.node_of(engine)),
      corrupt_every_(corrupt_every),
      chunk_(std::clamp<std::size_t>(chunk_bytes / settings_.block_bytes, 1, most_in_chunk)),
      window_(settings_.has_device() ? std::clamp<std::size_t>(window_bytes / settings_.block_bytes, chunk_,
                                                               std::max(chunk_, settings_.longest_chain))
                                     : chunk_),
      staging_(settings_.access == access_mode::copy ? window_ * settings_.block_bytes : 0, std::byte{1}),
      held_(settings_.longest_chain),
      reserved_(chunk_) {}

key_batch engine_worker::keys(std::size_t first, std::size_t count) const noexcept {
  return {names_[first].data(), count, key_width};
}

std::span<std::byte> engine_worker::buffer(std::size_t i) noexcept {
  return std::span(staging_).subspan(i * settings_.block_bytes, settings_.block_bytes);
}

result<void> engine_worker::serve(const planned_request& request, const attached_session& at) {
  const auto begun = clock::now();
  session_ = at.session.get();
  host_ = at.host.get();
  ids_ = plan_.ids(request);
  names_.clear();
  for (const std::uint64_t id : ids_) names_.push_back(key_of(id));
  found hits;
  result<void> went;
  if (!ids_.empty()) {
    went = match(hits);
    if (went) went = bring_up(hits);
    if (went) went = host_ != nullptr ? load_from_device(hits) : load(hits);
    if (went) went = store(hits.loaded);
    if (hits.ticket) session_->drop(*hits.ticket);  // also of a request that failed
  }
  const bool is_down = !went && lost_node(at);
  if (is_down) {
    done_.down.add(1);
  } else if (!went) {
    shared_plan::say(engine_, went.error().describe());
    if (!leaves_session_usable(went.error().code())) return went;
    done_.failed.add(1);
  }
  count_hits(request, hits, begun);
  return is_down ? went : result<void>();
}

void engine_worker::count_hits(const planned_request& request, const found& hits, clock::time_point begun) {
  const std::size_t device = std::min(hits.device, hits.loaded);
  const std::size_t upper = std::clamp(hits.upper, device, hits.loaded);
  const std::size_t here = std::clamp(hits.here, upper, hits.loaded);
  // Behind all that this machine had is the remote tier. Where a device is the only other place, somebody has put it
  // there meanwhile.
  const std::size_t behind = hits.loaded - here;
  const bool is_put_meanwhile = settings_.has_device() && settings_.remote_tier == 0;
  done_.gpu_hits.add(device + (is_put_meanwhile ? behind : 0));
  done_.upper_hits.add(upper - device);
  done_.lower_hits.add(here - upper);
  done_.remote_hits.add(is_put_meanwhile ? 0 : behind);
  const auto tokens_in = [&](std::size_t blocks) {
    return std::min<std::uint64_t>(blocks * settings_.block_tokens, request.tokens);
  };
  done_.hit_tokens.add(tokens_in(hits.loaded));
  const std::uint64_t behind_tokens = tokens_in(hits.loaded) - tokens_in(here);
  done_.gpu_tokens.add(tokens_in(device) + (is_put_meanwhile ? behind_tokens : 0));
  done_.upper_tokens.add(tokens_in(upper) - tokens_in(device));
  done_.remote_tokens.add(is_put_meanwhile ? 0 : behind_tokens);
  count_time(request, hits);
  done_.bytes_read.add(hits.loaded * settings_.block_bytes);
  done_.blocks.add(request.count);
  done_.tokens.add(request.tokens);
  done_.requests.add(1);
  request_result& became = plan_.result_of(request);
  became.upper.add(in_first_tier(hits));
  became.loaded.add(hits.loaded);
  const auto since_start = begun.time_since_epoch() - std::chrono::nanoseconds(plan_.started());
  became.begun_ns.add(std::max<std::uint64_t>(nanoseconds(since_start), 1));
}

/// Blocks read that were in the uppermost tier when the request came.
std::size_t engine_worker::in_first_tier(const found& hits) const noexcept {
  return std::min(settings_.has_device() ? hits.device : hits.upper, hits.loaded);
}

/// What the request takes until its first token, computing included; and what it would have taken without the lower
/// tiers: no wait, and what was there in the uppermost one read alone.
void engine_worker::count_time(const planned_request& request, const found& hits) {
  if (settings_.prefill_rate <= 0) return;
  const auto computing = [&](std::size_t blocks) {
    const auto tokens = std::min<std::uint64_t>(blocks * settings_.block_tokens, request.tokens);
    return static_cast<std::uint64_t>(static_cast<double>(request.tokens - tokens) / settings_.prefill_rate * 1e9);
  };
  const std::size_t first = in_first_tier(hits);
  const double first_share = hits.loaded == 0 ? 0.0 : static_cast<double>(first) / static_cast<double>(hits.loaded);
  const std::uint64_t with = nanoseconds(hits.looked + hits.waited + hits.read) + computing(hits.loaded);
  const std::uint64_t without = nanoseconds(hits.looked) +
                                static_cast<std::uint64_t>(static_cast<double>(nanoseconds(hits.read)) * first_share) +
                                computing(first);
  done_.with_lower.add(with);
  done_.without_lower.add(without);
  done_.time_with.add(with);
  done_.time_without.add(without);
}

// ---------------------------------------------------------------------------------------------- reading

result<void> engine_worker::match(found& hits) {
  const auto before = clock::now();
  const auto matched = session_->match_prefix(keys(0, ids_.size()), 0);
  if (!matched) return std::unexpected(matched.error());
  hits.looked = clock::now() - before;
  done_.match.add(nanoseconds(hits.looked));
  hits.device = host_ != nullptr ? matched->resident : 0;
  if (host_ != nullptr) return match_below(hits);
  hits.upper = matched->resident;
  hits.here = matched->reachable;
  hits.reached = settings_.remote_tier != 0 ? ids_.size() : hits.here;
  return {};
}

/// How far the chain goes on beyond the device's prefix: in DRAM, then on disks. It is what is counted, not what an
/// engine would ask for, so it is no part of the lookup's time.
result<void> engine_worker::match_below(found& hits) {
  const auto in_memory = lead_from(hits.device, false);
  if (!in_memory) return std::unexpected(in_memory.error());
  const auto in_all = lead_from(*in_memory, true);
  if (!in_all) return std::unexpected(in_all.error());
  hits.upper = *in_memory;
  hits.here = *in_all;
  hits.reached = settings_.remote_tier != 0 ? ids_.size() : hits.here;
  return {};
}

/// The end of the blocks from `first` on that DRAM or the device has; with those that the disks have.
result<std::size_t> engine_worker::lead_from(std::size_t first, bool with_disks) {
  std::size_t lead = first;
  while (lead < ids_.size()) {
    const std::size_t before = lead;
    const auto below = host_->match_prefix(keys(lead, ids_.size() - lead), 0);
    if (!below) return std::unexpected(below.error());
    lead += with_disks ? below->reachable : below->resident;
    if (lead == ids_.size()) break;
    // What DRAM has no longer may lie on the device all the same.
    const auto above = session_->match_prefix(keys(lead, ids_.size() - lead), 0);
    if (!above) return std::unexpected(above.error());
    lead += above->resident;
    if (lead == before) break;
  }
  return lead;
}

/// What only lower tiers have, as far as it comes in time.
result<void> engine_worker::bring_up(found& hits) {
  const bool has_lower = settings_.has_device() || settings_.lower_tier != 0 || settings_.remote_tier != 0;
  if (!has_lower || hits.reached <= (settings_.has_device() ? hits.device : hits.upper)) return {};
  const cpu_scope cpu(done_.library_cpu);
  const auto before = clock::now();
  auto ticket = session_->prefetch(keys(0, hits.reached), 0);
  if (!ticket) return std::unexpected(ticket.error());
  done_.prefetches.add(1);
  hits.ticket = std::move(*ticket);
  const auto came = session_->wait(*hits.ticket, before + std::chrono::nanoseconds(settings_.prefetch_wait_ns));
  hits.waited = clock::now() - before;
  done_.prefetch.add(nanoseconds(hits.waited));
  if (!came) return std::unexpected(came.error());
  if (!*came) done_.prefetches_cut.add(1);
  return {};
}

/// Pins the whole resident prefix, so that the node sees one use of it, and reads it.
result<void> engine_worker::load(found& hits) {
  if (hits.reached == 0) return {};
  const std::uint64_t cpu = thread_cpu();
  const auto before = clock::now();
  const std::uint64_t verified = done_.verify_cpu.get();
  const auto held = session_->acquire(keys(0, ids_.size()), 0, held_);
  if (hits.ticket) session_->drop(*hits.ticket);  // what it kept is pinned now
  if (!held) return std::unexpected(held.error());
  const auto blocks = std::span<const client::held_block>(held_).first(*held);
  auto reading = clock::now() - before;
  for (std::size_t first = 0; first < blocks.size(); first += chunk_) {
    const auto some = blocks.subspan(first, std::min(chunk_, blocks.size() - first));
    const auto begin = clock::now();
    if (settings_.access == access_mode::copy) {
      for (std::size_t i = 0; i < some.size(); ++i) {
        bulk_copy(buffer(i).data(), some[i].data, settings_.block_bytes, copy_direction::from_blocks);
      }
    }
    reading += clock::now() - begin;
    verify_blocks(some, first);
  }
  const auto releasing = clock::now();
  auto released = session_->release(blocks);
  reading += clock::now() - releasing;
  hits.loaded = *held;
  hits.read = reading;
  if (*held > 0) done_.load.add(nanoseconds(reading));
  done_.library_cpu.add(thread_cpu() - cpu - (done_.verify_cpu.get() - verified));
  return released;
}

/// The session copies, as a device's blocks are no memory of the processor's.
result<void> engine_worker::load_from_device(found& hits) {
  if (hits.reached == 0) return {};
  const std::uint64_t cpu = thread_cpu();
  const std::uint64_t verified = done_.verify_cpu.get();
  result<void> went;
  for (bool goes_on = true; goes_on && hits.loaded < ids_.size();) {
    const std::size_t wanted = std::min(window_, ids_.size() - hits.loaded);
    const auto begin = clock::now();
    const client::buffers targets(staging_.data(), settings_.block_bytes, settings_.block_bytes, wanted);
    const auto got = session_->get_into(keys(hits.loaded, wanted), 0, std::nullopt, targets);
    hits.read += clock::now() - begin;
    if (!got) went = std::unexpected(got.error());
    const std::size_t count = got.value_or(0);
    verify_copies(hits.loaded, count);
    hits.loaded += count;
    goes_on = count == wanted;
  }
  if (hits.ticket) session_->drop(*hits.ticket);
  if (hits.loaded > 0) done_.load.add(nanoseconds(hits.read));
  done_.library_cpu.add(thread_cpu() - cpu - (done_.verify_cpu.get() - verified));
  return went;
}

/// Blocks from `first` of the chain on, which lie in the engine's own memory.
void engine_worker::verify_copies(std::size_t first, std::size_t count) {
  if (settings_.verify == verify_mode::none) return;
  const cpu_scope cpu(done_.verify_cpu);
  for (std::size_t i = 0; i < count; ++i) verify(buffer(i), first + i);
}

void engine_worker::verify_blocks(std::span<const client::held_block> held, std::size_t first) {
  if (settings_.verify == verify_mode::none) return;
  const cpu_scope cpu(done_.verify_cpu);
  for (std::size_t i = 0; i < held.size(); ++i) {
    const bool copied = settings_.access == access_mode::copy;
    verify(copied ? buffer(i) : std::span(held[i].data, settings_.block_bytes), first + i);
  }
}

void engine_worker::verify(std::span<const std::byte> block, std::size_t place) {
  done_.verified_bytes.add(settings_.verify == verify_mode::all ? block.size() : 512);
  const auto wrong = content(ids_[place]).first_wrong(block, settings_.verify);
  if (!wrong) return;
  done_.wrong.add(1);
  shared_plan::say(engine_, fmt::format("wrong bytes: block {} of the trace, from byte {} on", ids_[place], *wrong));
}

// ---------------------------------------------------------------------------------------------- writing

void engine_worker::make(std::span<std::byte> block, std::size_t place) {
  if (settings_.verify == verify_mode::none) return;
  content(ids_[place]).fill(block);
  if (corrupt_every_ != 0 && ++made_ % corrupt_every_ == 0) block[block.size() / 2] ^= std::byte{1};
}

/// Puts the blocks from `first` on. A chunk that finds no room is tried in halves; a single one is given up.
result<void> engine_worker::store(std::size_t first) {
  const std::uint64_t cpu = thread_cpu();
  const std::uint64_t generated = done_.generate_cpu.get();
  done_.missed.add(ids_.size() - first);
  put_time_ = {};
  result<void> went;
  std::size_t most = chunk_;
  for (std::size_t at = first; at < ids_.size();) {
    const std::size_t count = std::min(most, ids_.size() - at);
    went = settings_.access == access_mode::copy ? put_copied(at, count) : put_in_place(at, count);
    if (went) {
      at += count;
    } else if (went.error().code() == error_code::no_space && count > 1) {
      most = count / 2;
    } else {
      done_.refused.add(ids_.size() - at);
      break;
    }
  }
  if (first < ids_.size()) done_.put.add(nanoseconds(put_time_));
  done_.library_cpu.add(thread_cpu() - cpu - (done_.generate_cpu.get() - generated));
  // A full tier is no failure: the engine computes again next time.
  if (!went && went.error().code() == error_code::no_space) return {};
  return went;
}

result<void> engine_worker::put_copied(std::size_t first, std::size_t count) {
  if (settings_.verify != verify_mode::none) {
    const cpu_scope cpu(done_.generate_cpu);
    for (std::size_t i = 0; i < count; ++i) make(buffer(i), first + i);
  }
  const auto before = clock::now();
  const client::buffers sources(staging_.data(), settings_.block_bytes, settings_.block_bytes, count);
  auto put = session_->put(keys(first, count), 0, std::nullopt, sources);
  put_time_ += clock::now() - before;
  if (!put.status) return put.status;
  done_.stored.add(put.stored);
  done_.bytes_stored.add(put.stored * settings_.block_bytes);
  done_.present.add(count - put.stored);
  return {};
}

result<void> engine_worker::put_in_place(std::size_t first, std::size_t count) {
  const auto before = clock::now();
  const auto blocks = std::span(reserved_).first(count);
  if (auto reserved = session_->reserve(keys(first, count), 0, std::nullopt, blocks); !reserved) return reserved;
  put_time_ += clock::now() - before;
  std::size_t ours = 0;
  {
    const cpu_scope cpu(done_.generate_cpu);
    for (std::size_t i = 0; i < count; ++i) {
      if (blocks[i].state != client::reserve_state::writable) continue;
      make({blocks[i].data, settings_.block_bytes}, first + i);
      ++ours;
    }
  }
  const auto committing = clock::now();
  const auto committed = session_->commit(blocks);
  put_time_ += clock::now() - committing;
  if (!committed) return std::unexpected(committed.error());
  done_.stored.add(*committed);
  done_.bytes_stored.add(*committed * settings_.block_bytes);
  done_.present.add(count - ours);
  return {};
}

}  // namespace cenote::replay
