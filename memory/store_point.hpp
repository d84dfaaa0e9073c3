// The one way in which a worker stores to shared memory: every store names its point, and tests kill the worker right
// after each.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace cenote {

/// A place in the sources behind which a worker may die: `"publish.record"_point`. scripts/store_points.py reads all of
/// them out of the sources, refuses a name that stands at two places, and a store that has none.
class store_point {
 public:
  consteval explicit store_point(const char* name) noexcept : name_(name) {}
  [[nodiscard]] constexpr std::string_view name() const noexcept { return name_; }

 private:
  const char* name_;
};

consteval store_point operator""_point(const char* name, std::size_t) noexcept {
  return store_point(name);
}

/// The point of stores that no worker makes (tests, benches). scripts/store_points.py refuses it in the worker's
/// sources.
inline constexpr store_point no_point{""};

namespace memory {

/// Called when a point was passed, by the thread that passed it.
using store_hook = void (*)(store_point passed) noexcept;

namespace detail {
// Global, since a point knows nothing but its name. Null but under tests and with `debug.kill_at`.
inline constinit std::atomic<store_hook> installed_hook{nullptr};
}  // namespace detail

/// Before the worker's threads begin.
inline void install_store_hook(store_hook hook) noexcept {
  detail::installed_hook.store(hook, std::memory_order_relaxed);
}
[[nodiscard]] inline store_hook current_store_hook() noexcept {
  return detail::installed_hook.load(std::memory_order_relaxed);
}

/// What the names below call after their store; by itself, for what is told to the keeper or the kernel.
inline void passed(store_point point) noexcept {
  if (const store_hook hook = current_store_hook(); hook != nullptr) [[unlikely]]
    hook(point);
}

template <class T>
void shared_store(std::atomic<T>& word, std::type_identity_t<T> value, std::memory_order order,
                  store_point point) noexcept {
  word.store(value, order);
  passed(point);
}

/// A plain store: to memory that no other process maps, or has seen yet. Of an integer other threads may read it as
/// one.
template <class T>
void shared_assign(T& field, std::type_identity_t<T> value, store_point point) noexcept {
  if constexpr (std::integral<T>) {
    std::atomic_ref(field).store(value, std::memory_order_relaxed);
  } else {
    field = value;
  }
  passed(point);
}

template <std::unsigned_integral T>
void shared_set_bits(T& field, std::type_identity_t<T> bits, store_point point) noexcept {
  shared_assign(field, static_cast<T>(field | bits), point);
}

template <std::unsigned_integral T>
void shared_clear_bits(T& field, std::type_identity_t<T> bits, store_point point) noexcept {
  shared_assign(field, static_cast<T>(field & ~bits), point);
}

/// Returns the value of before, as shared_or() does.
template <std::integral T>
T shared_add(std::atomic<T>& word, std::type_identity_t<T> amount, std::memory_order order,
             store_point point) noexcept {
  const T before = word.fetch_add(amount, order);
  passed(point);
  return before;
}

template <std::integral T>
T shared_or(std::atomic<T>& word, std::type_identity_t<T> bits, std::memory_order order, store_point point) noexcept {
  const T before = word.fetch_or(bits, order);
  passed(point);
  return before;
}

/// Compare-and-swap, sequentially consistent. False: `expected` has what is there instead.
template <class T>
bool shared_swap(std::atomic<T>& word, T& expected, std::type_identity_t<T> wanted, store_point point) noexcept {
  const bool swapped = word.compare_exchange_strong(expected, wanted, std::memory_order_seq_cst);
  passed(point);
  return swapped;
}

/// memcpy that may end behind each word: the point is passed after every 8 bytes.
inline void shared_bytes(void* target, const void* source, std::size_t bytes, store_point point) noexcept {
  if (current_store_hook() == nullptr) [[likely]] {
    std::memcpy(target, source, bytes);
    return;
  }
  for (std::size_t done = 0; done < bytes; done += 8) {
    std::memcpy(static_cast<std::byte*>(target) + done, static_cast<const std::byte*>(source) + done,
                bytes - done < 8 ? bytes - done : 8);
    passed(point);
  }
}

/// As above, word by word and relaxed: others may read while it is written.
inline void shared_words(std::atomic<std::uint64_t>* target, const std::uint64_t* source, std::size_t words,
                         store_point point) noexcept {
  for (std::size_t i = 0; i < words; ++i) shared_store(target[i], source[i], std::memory_order_relaxed, point);
}

}  // namespace memory
}  // namespace cenote
