// Intrusive lists over block numbers, and what policies remember of each block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// A value for each block number, made when it is first asked for. Values lie in pages of some hundred, each allocated
/// with its first value: a pool takes memory for its own blocks, not for the numbers of other pools, and growing moves
/// no value.
template <class T>
class per_block {
 public:
  /// Throws std::bad_alloc, and has changed nothing then.
  [[nodiscard]] T& make(std::uint32_t block) {
    const std::size_t page = block / page_values;
    if (page >= pages_.size()) pages_.resize(page + 1);
    if (pages_[page] == nullptr) pages_[page] = std::make_unique<T[]>(page_values);
    return pages_[page][block % page_values];
  }
  /// Null when no value of its page was made.
  [[nodiscard]] const T* find(std::uint32_t block) const noexcept {
    const std::size_t page = block / page_values;
    return page < pages_.size() && pages_[page] != nullptr ? &pages_[page][block % page_values] : nullptr;
  }
  /// Calls `visit` with the number and the value of each block of the pages that there are, in ascending order.
  template <class Visit>
  void visit_all(Visit&& visit) {
    for (std::size_t page = 0; page < pages_.size(); ++page) {
      if (pages_[page] == nullptr) continue;
      for (std::uint32_t place = 0; place < page_values; ++place) {
        visit(static_cast<std::uint32_t>(page * page_values + place), pages_[page][place]);
      }
    }
  }
  /// Of a block whose value was made.
  [[nodiscard]] T& operator[](std::uint32_t block) noexcept { return pages_[block / page_values][block % page_values]; }
  [[nodiscard]] const T& operator[](std::uint32_t block) const noexcept {
    return pages_[block / page_values][block % page_values];
  }

 private:
  static constexpr std::uint32_t page_values = 512;

  std::vector<std::unique_ptr<T[]>> pages_;
};

}  // namespace cenote::eviction
