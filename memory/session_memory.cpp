#include "memory/session_memory.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "memory/fence.hpp"
#include "memory/store_point.hpp"

namespace cenote::memory {

namespace {

/// Ring places are shared with a process that may write at any time: word-wise atomic copies keep that defined.
template <class T>
std::array<std::uint64_t, sizeof(T) / 8> words_of(const T& value) noexcept {
  static_assert(sizeof(T) % 8 == 0);
  std::array<std::uint64_t, sizeof(T) / 8> words;
  std::memcpy(words.data(), &value, sizeof(T));
  return words;
}

std::atomic<std::uint64_t>* words_at(std::byte* place) noexcept {
  return reinterpret_cast<std::atomic<std::uint64_t>*>(place);
}

template <class T>
T load_words(const std::byte* place) noexcept {
  static_assert(sizeof(T) % 8 == 0);
  std::uint64_t words[sizeof(T) / 8];
  const auto* source = reinterpret_cast<const std::atomic<std::uint64_t>*>(place);
  for (std::size_t i = 0; i < sizeof(T) / 8; ++i) words[i] = source[i].load(std::memory_order_relaxed);
  T value;
  std::memcpy(static_cast<void*>(&value), words, sizeof(T));
  return value;
}

}  // namespace

session_memory session_memory::create(const segment& memory, std::uint64_t session, std::uint32_t pin_slots) noexcept {
  session_memory view(memory.data(), pin_slots);
  write_header(view.header().segment, segment_kind::session, memory.size());
  shared_assign(view.header().session, session, "session.number"_point);
  shared_assign(view.header().pin_slots, pin_slots, "session.pin_slots"_point);
  shared_store(view.header().phase, static_cast<std::uint32_t>(session_phase::active), std::memory_order_release,
               "session.active"_point);
  return view;
}

choice_words session_memory::choice() const noexcept {
  choice_words words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = header().machine_choice[i].load(std::memory_order_relaxed);
  return words;
}

void session_memory::hand_over(const choice_words& choice) const noexcept {
  for (std::size_t i = 0; i < choice.size(); ++i)
    shared_store(header().machine_choice[i], choice[i], std::memory_order_relaxed, "session.machine_choice"_point);
}

error ended_by_node(const session_memory& session) {
  return {
      error_code::session_killed,
      "the node ended this session: " + std::to_string(session.header().wrong_blocks.load(std::memory_order_relaxed)) +
          " blocks that it stored did not have the bytes of their checksums; does the engine write to blocks after "
          "they are stored?"};
}

// ---------------------------------------------------------------------------------------------- client

std::uint64_t client_rings::room() const noexcept {
  const session_header& header = memory_.header();
  const std::uint64_t used =
      header.submit_tail.load(std::memory_order_relaxed) + pushed_ - header.submit_head.load(std::memory_order_acquire);
  return used >= session_memory::submissions ? 0 : session_memory::submissions - used;
}

void client_rings::push(const submission& entry) noexcept {
  const std::uint64_t tail = memory_.header().submit_tail.load(std::memory_order_relaxed);
  auto* place = words_at(memory_.submission_at(tail + pushed_));
  for (const std::uint64_t word : words_of(entry)) place++->store(word, std::memory_order_relaxed);
  ++pushed_;
}

bool client_rings::publish() noexcept {
  session_header& header = memory_.header();
  const std::uint64_t tail = header.submit_tail.load(std::memory_order_relaxed);
  header.submit_tail.store(tail + pushed_, std::memory_order_release);
  pushed_ = 0;
  full_fence();  // pairs with the one in worker_rings::arm: the worker sees the tail, or we see that it sleeps
  return header.worker_sleeps.load(std::memory_order_relaxed) != 0;
}

bool client_rings::claim_wake() noexcept {
  return memory_.header().worker_sleeps.exchange(0, std::memory_order_seq_cst) != 0;
}

std::optional<completion> client_rings::pop() noexcept {
  session_header& header = memory_.header();
  const std::uint64_t head = header.complete_head.load(std::memory_order_relaxed);
  if (head == header.complete_tail.load(std::memory_order_acquire)) return std::nullopt;
  const auto entry = load_words<completion>(memory_.completion_at(head));
  header.complete_head.store(head + 1, std::memory_order_release);
  return entry;
}

bool client_rings::arm() noexcept {
  session_header& header = memory_.header();
  header.client_sleeps.store(1, std::memory_order_relaxed);
  full_fence();
  if (header.complete_head.load(std::memory_order_relaxed) == header.complete_tail.load(std::memory_order_acquire)) {
    return true;
  }
  disarm();
  return false;
}

void client_rings::disarm() noexcept {
  memory_.header().client_sleeps.store(0, std::memory_order_relaxed);
}

// ---------------------------------------------------------------------------------------------- worker

worker_rings::worker_rings(session_memory memory) noexcept
    : memory_(memory),
      submit_head_(memory.header().submit_head.load(std::memory_order_acquire)),
      complete_tail_(memory.header().complete_tail.load(std::memory_order_acquire)) {}

std::optional<std::uint64_t> worker_rings::waiting() const noexcept {
  const std::uint64_t count = memory_.header().submit_tail.load(std::memory_order_acquire) - submit_head_;
  if (count > session_memory::submissions) return std::nullopt;
  return count;
}

submission worker_rings::peek(std::uint64_t i) const noexcept {
  return load_words<submission>(memory_.submission_at(submit_head_ + i));
}

void worker_rings::advance(std::uint64_t n) noexcept {
  submit_head_ += n;
  shared_store(memory_.header().submit_head, submit_head_, std::memory_order_release, "session.submit_head"_point);
}

std::optional<std::uint64_t> worker_rings::completion_room() const noexcept {
  const std::uint64_t used = complete_tail_ - memory_.header().complete_head.load(std::memory_order_acquire);
  if (used > session_memory::completions) return std::nullopt;
  return session_memory::completions - used;
}

void worker_rings::push(const completion& entry) noexcept {
  const auto words = words_of(entry);
  shared_words(words_at(memory_.completion_at(complete_tail_)), words.data(), words.size(), "session.completion"_point);
  ++complete_tail_;
}

bool worker_rings::publish() noexcept {
  session_header& header = memory_.header();
  shared_store(header.complete_tail, complete_tail_, std::memory_order_release, "session.complete_tail"_point);
  full_fence();  // pairs with the one in client_rings::arm
  return header.client_sleeps.load(std::memory_order_relaxed) != 0;
}

bool worker_rings::claim_wake() noexcept {
  std::uint32_t asleep = 1;
  return shared_swap(memory_.header().client_sleeps, asleep, 0, "session.client_woken"_point);
}

bool worker_rings::arm() noexcept {
  shared_store(memory_.header().worker_sleeps, 1, std::memory_order_relaxed, "session.worker_sleeps"_point);
  full_fence();
  if (memory_.header().submit_tail.load(std::memory_order_acquire) == submit_head_) return true;
  disarm();
  return false;
}

void worker_rings::disarm() noexcept {
  shared_store(memory_.header().worker_sleeps, 0, std::memory_order_relaxed, "session.worker_woke"_point);
}

// ---------------------------------------------------------------------------------------------- pins

pin_scan::pin_scan(std::span<const block_ref> condemned) : marks_(condemned.size(), 0) {
  const std::uint64_t slots = std::bit_ceil(std::max<std::uint64_t>(16, condemned.size() * 4));
  table_.assign(slots, 0);
  place_.assign(slots, 0);
  mask_ = slots - 1;
  for (std::uint32_t i = 0; i < condemned.size(); ++i) {
    std::uint64_t slot = (condemned[i].bits * 0x9e3779b97f4a7c15ULL >> 20) & mask_;
    while (table_[slot] != 0) slot = (slot + 1) & mask_;
    table_[slot] = condemned[i].bits;
    place_[slot] = i;
  }
}

void pin_scan::add(const session_memory& session) noexcept {
  const std::uint64_t limit =
      std::min<std::uint64_t>(session.pin_slots(), session.header().pin_high_water.load(std::memory_order_acquire));
  for (std::uint64_t i = 0; i < limit; ++i) {
    const std::uint64_t bits = session.pin(i).load(std::memory_order_acquire);
    if (bits == 0) continue;
    std::uint64_t slot = (bits * 0x9e3779b97f4a7c15ULL >> 20) & mask_;
    for (; table_[slot] != 0; slot = (slot + 1) & mask_) {
      if (table_[slot] == bits) {
        marks_[place_[slot]] = 1;
        break;
      }
    }
  }
}

}  // namespace cenote::memory
