#include "services/manager/service/served_view.hpp"

#include <algorithm>
#include <utility>

namespace cenote::manager {

served_instance::served_instance(std::shared_ptr<const instance_terms> terms, std::shared_ptr<const group_terms> group,
                                 std::shared_ptr<const instance_index> index,
                                 std::shared_ptr<const storage_table> storages)
    : terms_(std::move(terms)), group_(std::move(group)), index_(std::move(index)), storages_(std::move(storages)) {}

served_instance::~served_instance() {
  for (const auto& texts : texts_) std::unique_ptr<const storage_texts>(texts.load(std::memory_order_relaxed));
}

const storage_texts& served_instance::texts(std::uint8_t storage) const {
  auto& place = texts_[storage];
  if (const storage_texts* const texts = place.load(std::memory_order_acquire); texts != nullptr) return *texts;
  auto made = std::make_unique<const storage_texts>(*terms_, *(*storages_)[storage]->terms);
  const storage_texts* first = nullptr;
  if (place.compare_exchange_strong(first, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *first;  // another reader was faster
}

use_list::~use_list() {
  (void)take();
}

void use_list::add(std::uint64_t instance, std::vector<std::uint32_t> records) {
  if (waiting_.load(std::memory_order_relaxed) >= most_waiting) return;
  waiting_.fetch_add(records.size(), std::memory_order_relaxed);
  auto used = std::make_unique<used_records>();
  used->instance = instance;
  used->records = std::move(records);
  used->next = newest_.load(std::memory_order_relaxed);
  while (!newest_.compare_exchange_weak(used->next, used.get(), std::memory_order_release, std::memory_order_relaxed)) {
  }
  (void)used.release();
}

std::vector<std::unique_ptr<use_list::used_records>> use_list::take() {
  std::vector<std::unique_ptr<used_records>> all;
  used_records* next = newest_.exchange(nullptr, std::memory_order_acquire);
  std::size_t records = 0;
  while (next != nullptr) {
    all.emplace_back(next);
    records += next->records.size();
    next = next->next;
  }
  std::ranges::reverse(all);
  waiting_.fetch_sub(records, std::memory_order_relaxed);
  return all;
}

}  // namespace cenote::manager
