#include "commands/replay/shared_plan.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace cenote::replay {

namespace {

constexpr std::uint64_t magic = 0x36304452414f4252;  // "RBOARD06"

constexpr std::uint64_t aligned(std::uint64_t offset) noexcept {
  return (offset + 63) / 64 * 64;
}

}  // namespace

instance_spec spec_of(const run_settings& settings) {
  instance_spec spec;
  spec.id = settings.instance.data();
  spec.model = "replay";
  spec.dtype = "bytes";
  spec.layout = "flat";
  spec.tokens_per_block = static_cast<std::uint32_t>(settings.block_tokens);
  spec.groups = {{"full", {{"kv", settings.block_bytes}}}};
  spec.hash_scheme = "trace-id";
  return spec;
}

void tally::merge(const tally& other) noexcept {
  for (const auto word :
       {&tally::requests,    &tally::failed,       &tally::blocks,         &tally::tokens,     &tally::upper_hits,
        &tally::lower_hits,  &tally::remote_hits,  &tally::remote_tokens,  &tally::hit_tokens, &tally::upper_tokens,
        &tally::time_with,   &tally::time_without, &tally::bytes_read,     &tally::stored,     &tally::bytes_stored,
        &tally::present,     &tally::refused,      &tally::verified_bytes, &tally::wrong,      &tally::prefetches,
        &tally::gpu_hits,    &tally::gpu_tokens,   &tally::missed,         &tally::down,       &tally::prefetches_cut,
        &tally::library_cpu, &tally::generate_cpu, &tally::verify_cpu}) {
    (this->*word).add((other.*word).get());
  }
  for (const auto counts : {&tally::match, &tally::load, &tally::put, &tally::prefetch, &tally::late,
                            &tally::with_lower, &tally::without_lower}) {
    (this->*counts).merge(other.*counts);
  }
}

std::optional<std::string> tally::wrong_sum() const {
  if (failed.get() + down.get() > 0) return std::nullopt;
  const std::uint64_t hits = gpu_hits.get() + upper_hits.get() + lower_hits.get() + remote_hits.get();
  const std::uint64_t taken = stored.get() + present.get() + refused.get();
  if (hits + missed.get() == blocks.get() && taken == missed.get()) return std::nullopt;
  return fmt::format("the tiers do not add up: {} hits and {} computed blocks, of which {} were put, of {} blocks",
                     hits, missed.get(), taken, blocks.get());
}

result<shared_plan> shared_plan::create(const run_settings& settings, const simulation::trace& trace,
                                        std::span<const std::uint32_t> engine_of) {
  const auto requests = trace.requests();
  header plan{};
  plan.magic = magic;
  plan.settings = settings;
  plan.request_count = requests.size();
  plan.id_count = trace.stream().size();
  plan.requests_at = aligned(sizeof(header));
  plan.ids_at = aligned(plan.requests_at + requests.size() * sizeof(planned_request));
  plan.results_at = aligned(plan.ids_at + plan.id_count * sizeof(std::uint64_t));
  plan.engines_at = aligned(plan.results_at + requests.size() * sizeof(request_result));
  plan.workers_at = aligned(plan.engines_at + settings.engines * sizeof(engine_state));
  plan.bytes = plan.workers_at + std::uint64_t{settings.engines} * settings.workers * aligned(sizeof(tally));
  auto memory = memory::segment::create("cenote-replay", plan.bytes);
  if (!memory) return std::unexpected(memory.error());
  shared_plan made(std::move(*memory));
  auto* const head = new (made.memory_.data()) header{};
  head->magic = plan.magic;
  head->bytes = plan.bytes;
  head->settings = plan.settings;
  head->request_count = plan.request_count;
  head->requests_at = plan.requests_at;
  head->ids_at = plan.ids_at;
  head->id_count = plan.id_count;
  head->results_at = plan.results_at;
  head->engines_at = plan.engines_at;
  head->workers_at = plan.workers_at;
  auto* const planned = made.at<planned_request>(plan.requests_at);
  const std::uint64_t first_time = requests.empty() ? 0 : requests.front().time_ms;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& each = requests[i];
    new (planned + i) planned_request{.first = each.first,
                                      .count = static_cast<std::uint32_t>(each.count),
                                      .engine = engine_of[i],
                                      .tokens = each.tokens,
                                      .due_ms = each.time_ms - first_time};
    new (made.at<request_result>(plan.results_at) + i) request_result;
    std::ranges::copy(trace.ids(each), made.at<std::uint64_t>(plan.ids_at) + each.first);
  }
  for (std::uint32_t e = 0; e < settings.engines; ++e) {
    new (&made.engine(e)) engine_state;
    for (std::uint32_t l = 0; l < settings.workers; ++l) new (&made.worker(e, l)) tally;
  }
  return made;
}

result<shared_plan> shared_plan::open(unique_fd fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return fail_errno("fstat", "the replay's shared memory");
  const auto bytes = static_cast<std::uint64_t>(status.st_size);
  if (bytes < sizeof(header)) return fail(error_code::layout_mismatch, "this is not a replay's shared memory");
  auto memory = memory::segment::map(std::move(fd), bytes, memory::access::read_write);
  if (!memory) return std::unexpected(memory.error());
  shared_plan opened(std::move(*memory));
  if (opened.head().magic != magic || opened.head().bytes != bytes) {
    return fail(error_code::layout_mismatch, "this is not a replay's shared memory, or that of another version");
  }
  return opened;
}

std::span<const planned_request> shared_plan::requests() const noexcept {
  return {at<planned_request>(head().requests_at), head().request_count};
}

std::span<const std::uint64_t> shared_plan::ids(const planned_request& request) const noexcept {
  return {at<std::uint64_t>(head().ids_at) + request.first, request.count};
}

request_result& shared_plan::result_of(const planned_request& which) const noexcept {
  return at<request_result>(head().results_at)[&which - at<planned_request>(head().requests_at)];
}

engine_state& shared_plan::engine(std::uint32_t number) const noexcept {
  return at<engine_state>(head().engines_at)[number];
}

tally& shared_plan::worker(std::uint32_t engine, std::uint32_t number) const noexcept {
  const std::uint64_t place = std::uint64_t{engine} * settings().workers + number;
  return *at<tally>(head().workers_at + place * aligned(sizeof(tally)));
}

void shared_plan::sum(std::uint32_t engine, tally& into) const noexcept {
  for (std::uint32_t l = 0; l < settings().workers; ++l) into.merge(worker(engine, l));
}

void shared_plan::sum(tally& into) const noexcept {
  for (std::uint32_t e = 0; e < settings().engines; ++e) sum(e, into);
}

void shared_plan::say(engine_state& engine, std::string_view message) noexcept {
  if (engine.message_bytes.load(std::memory_order_relaxed) != 0) return;
  const std::size_t bytes = std::min(message.size(), engine.message.size());
  std::memcpy(engine.message.data(), message.data(), bytes);
  engine.message_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_release);
}

std::string shared_plan::said(const engine_state& engine) {
  const std::size_t bytes = engine.message_bytes.load(std::memory_order_acquire);
  return {engine.message.data(), std::min<std::size_t>(bytes, engine.message.size())};
}

}  // namespace cenote::replay
