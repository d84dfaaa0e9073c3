// Intrusive lists over block numbers, and what policies remember of each block.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cenote::eviction {

/// Links of intrusive lists over block numbers, shared by the policies of a tier so that a block costs 8 bytes once.
class block_links {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  struct link {
    std::uint32_t previous = none;
    std::uint32_t next = none;
  };
  [[nodiscard]] link& operator[](std::uint32_t block) noexcept { return links_[block]; }
  /// Makes room for block numbers below `n`.
  void cover(std::uint32_t n) {
    if (n > links_.size()) links_.resize(n);
  }

 private:
  std::vector<link> links_;
};

/// A list from front to back. A block is in at most one list of its links. Not thread-safe.
class block_list {
 public:
  static constexpr std::uint32_t none = block_links::none;

  explicit block_list(block_links& links) noexcept : links_(&links) {}

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] std::uint32_t front() const noexcept { return front_; }  ///< none when empty
  [[nodiscard]] std::uint32_t back() const noexcept { return back_; }    ///< none when empty
  /// The neighbour towards the front; none at the front.
  [[nodiscard]] std::uint32_t before(std::uint32_t block) const noexcept { return (*links_)[block].previous; }

  void push_front(std::uint32_t block) noexcept {
    (*links_)[block] = {none, front_};
    (front_ == none ? back_ : (*links_)[front_].previous) = block;
    front_ = block;
    ++size_;
  }
  void push_back(std::uint32_t block) noexcept {
    (*links_)[block] = {back_, none};
    (back_ == none ? front_ : (*links_)[back_].next) = block;
    back_ = block;
    ++size_;
  }
  void remove(std::uint32_t block) noexcept {
    const block_links::link link = (*links_)[block];
    (link.previous == none ? front_ : (*links_)[link.previous].next) = link.next;
    (link.next == none ? back_ : (*links_)[link.next].previous) = link.previous;
    --size_;
  }
  void move_to_front(std::uint32_t block) noexcept {
    if (front_ == block) return;
    remove(block);
    push_front(block);
  }

 private:
  block_links* links_;
  std::uint32_t front_ = none;
  std::uint32_t back_ = none;
  std::uint32_t size_ = 0;
};

/// A value for each block number, made when it is first asked for.
template <class T>
class per_block {
 public:
  /// Grows, so references into it end here.
  [[nodiscard]] T& make(std::uint32_t block) {
    if (block >= values_.size()) values_.resize(std::max<std::size_t>(std::size_t{block} + 1, values_.size() * 2));
    return values_[block];
  }
  /// Null when it was never made.
  [[nodiscard]] const T* find(std::uint32_t block) const noexcept {
    return block < values_.size() ? &values_[block] : nullptr;
  }
  /// Numbers below this may have a value.
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  [[nodiscard]] T& operator[](std::uint32_t block) noexcept { return values_[block]; }
  [[nodiscard]] const T& operator[](std::uint32_t block) const noexcept { return values_[block]; }

 private:
  std::vector<T> values_;
};

}  // namespace cenote::eviction
