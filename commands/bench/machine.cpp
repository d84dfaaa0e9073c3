#include "commands/bench/machine.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/machine.hpp"

namespace cenote::bench {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t copied_bytes = 256 * MiB;  // of each side: more than most caches hold
constexpr std::uint64_t sample_bytes = 32 * MiB;
constexpr unsigned default_rounds = 4;

struct generation {
  std::string_view vendor;
  unsigned family;
  unsigned first_model;
  unsigned last_model;
  std::string_view name;
};

/// Server processors of the field, by the numbers of CPUID and of Arm's MIDR (there the family is 8).
constexpr std::array generations{
    generation{"GenuineIntel", 6, 79, 79, "Broadwell"},
    generation{"GenuineIntel", 6, 85, 85, "Skylake or Cascade Lake"},
    generation{"GenuineIntel", 6, 106, 108, "Ice Lake"},
    generation{"GenuineIntel", 6, 143, 143, "Sapphire Rapids"},
    generation{"GenuineIntel", 6, 173, 174, "Granite Rapids"},
    generation{"GenuineIntel", 6, 207, 207, "Emerald Rapids"},
    generation{"AuthenticAMD", 23, 0, 47, "Zen"},
    generation{"AuthenticAMD", 23, 48, 255, "Zen 2"},
    generation{"AuthenticAMD", 25, 0, 15, "Zen 3"},
    generation{"AuthenticAMD", 25, 32, 95, "Zen 3"},
    generation{"AuthenticAMD", 25, 16, 31, "Zen 4"},
    generation{"AuthenticAMD", 25, 96, 175, "Zen 4"},
    generation{"AuthenticAMD", 26, 0, 255, "Zen 5"},
    generation{"0x41", 8, 0xd0c, 0xd0c, "Neoverse N1"},
    generation{"0x41", 8, 0xd40, 0xd40, "Neoverse V1"},
    generation{"0x41", 8, 0xd49, 0xd49, "Neoverse N2"},
    generation{"0x41", 8, 0xd4f, 0xd4f, "Neoverse V2"},
};

std::string text_of(const processor_fields& all, std::initializer_list<std::string_view> names) {
  for (const auto name : names) {
    if (const auto found = all.find(name); found != all.end()) return found->second;
  }
  return {};
}

/// Decimal, or hexadecimal with 0x; 0 where it is neither.
unsigned number_of(std::string_view text) {
  const bool is_hexadecimal = text.starts_with("0x");
  if (is_hexadecimal) text.remove_prefix(2);
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, is_hexadecimal ? 16 : 10);
  return value;
}

bool has_word(std::string_view words, std::string_view word) {
  const std::string padded = fmt::format(" {} ", words);
  return padded.find(fmt::format(" {} ", word)) != std::string::npos;
}

/// Of x86, and of Arm, whose scalable registers the kernel does not measure in /proc.
unsigned vector_bits_of(std::string_view features) {
  if (has_word(features, "avx512f")) return 512;
  if (has_word(features, "avx2")) return 256;
  return has_word(features, "sse2") || has_word(features, "asimd") ? 128 : 0;
}

/// "49152K" or "300M", as /sys writes them.
std::uint64_t bytes_of(std::string_view size) {
  const std::uint64_t number = number_of(size);
  if (size.ends_with('K')) return number * KiB;
  return size.ends_with('M') ? number * MiB : number;
}

std::vector<cache_size> caches_below(const fs::path& root) {
  std::vector<cache_size> found;
  for (unsigned i = 0;; ++i) {
    const fs::path place = root / fmt::format("sys/devices/system/cpu/cpu0/cache/index{}", i);
    const auto level = first_line(place / "level");
    if (!level) return found;
    const auto type = first_line(place / "type").value_or("");
    if (type == "Instruction") continue;
    found.push_back({"L" + *level + (type == "Data" ? "d" : ""), bytes_of(first_line(place / "size").value_or(""))});
  }
}

/// The choice in brackets: "always [madvise] never".
std::string chosen_word(const std::optional<std::string>& line) {
  if (!line) return {};
  const auto first = line->find('[');
  const auto last = line->find(']');
  return first < last && last != std::string::npos ? line->substr(first + 1, last - first - 1) : std::string();
}

std::string generation_of(const machine& host) {
  for (const auto& each : generations) {
    if (each.vendor == host.vendor && each.family == host.family && each.first_model <= host.model &&
        host.model <= each.last_model) {
      return std::string(each.name);
    }
  }
  return fmt::format("{} family {} model {}", host.vendor, host.family, host.model);
}

/// Lower case, with one hyphen for all that is neither letter nor digit.
std::string kind_of(const machine& host) {
  std::string kind;
  for (const char each : fmt::format("{} {}", host.generation, host.cores)) {
    if (std::isalnum(static_cast<unsigned char>(each)) != 0) {
      kind += static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
    } else if (!kind.empty() && kind.back() != '-') {
      kind += '-';
    }
  }
  return kind;
}

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<unsigned>(CPU_COUNT(&set)) : 0;
}

double measure_memcpy(unsigned rounds) {
  memory_pieces memory(2, copied_bytes);
  samples times;
  for (unsigned round = 0; round <= rounds; ++round) {
    for (std::uint64_t offset = 0; offset < copied_bytes; offset += sample_bytes) {
      const stopwatch watch;
      std::memcpy(memory.piece(1) + offset, memory.piece(0) + offset, sample_bytes);
      if (round != 0) times.add(watch.seconds());
    }
  }
  return static_cast<double>(sample_bytes) / static_cast<double>(GiB) / times.median();
}

std::string text_of(const machine& host) {
  std::string caches;
  for (const auto& each : host.caches) caches += fmt::format(", {} {}", each.level, approximate_bytes(each.bytes));
  return fmt::format(
      "{}: {} ({}), family {} model {} stepping {}\n"
      "{} cores, vectors of {} bits{}\n"
      "Linux {}, pages of {}, huge pages {} (shared memory {}), memcpy {:.1f} GiB/s\n",
      host.kind, host.processor, host.generation, host.family, host.model, host.stepping, host.cores, host.vector_bits,
      caches, host.kernel, approximate_bytes(host.page_bytes), host.huge_pages, host.shared_huge_pages,
      host.memcpy_rate);
}

}  // namespace

machine read_machine(const fs::path& root) {
  machine host;
  const processor_fields all = read_processor_fields(root);
  host.vendor = text_of(all, {"vendor_id", "CPU implementer"});
  host.family = number_of(text_of(all, {"cpu family", "CPU architecture"}));
  host.model = number_of(text_of(all, {"model", "CPU part"}));
  host.stepping = number_of(text_of(all, {"stepping", "CPU revision"}));
  host.generation = generation_of(host);
  host.processor = text_of(all, {"model name"});
  if (host.processor.empty()) host.processor = host.generation;
  host.vector_bits = vector_bits_of(text_of(all, {"flags", "Features"}));
  host.caches = caches_below(root);
  host.cores = usable_cores();
  host.kernel = first_line(root / "proc/sys/kernel/osrelease").value_or("");
  host.page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  host.huge_pages = chosen_word(first_line(root / "sys/kernel/mm/transparent_hugepage/enabled"));
  host.shared_huge_pages = chosen_word(first_line(root / "sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  host.kind = kind_of(host);
  return host;
}

std::string json_line(const machine& host) {
  nlohmann::ordered_json caches = nlohmann::ordered_json::object();
  for (const auto& each : host.caches) caches[each.level] = each.bytes;
  const nlohmann::ordered_json about{{"kind", host.kind},
                                     {"processor", host.processor},
                                     {"generation", host.generation},
                                     {"vendor", host.vendor},
                                     {"family", host.family},
                                     {"model", host.model},
                                     {"stepping", host.stepping},
                                     {"cores", host.cores},
                                     {"vector_bits", host.vector_bits},
                                     {"caches", caches},
                                     {"kernel", host.kernel},
                                     {"page_bytes", host.page_bytes},
                                     {"huge_pages", host.huge_pages},
                                     {"shared_huge_pages", host.shared_huge_pages},
                                     {"memcpy_gib_s", host.memcpy_rate}};
  return nlohmann::ordered_json{{"machine", about}}.dump();
}

result<void> run_machine(const options& options, report& out) {
  machine host = read_machine();
  host.memcpy_rate = measure_memcpy(options.rounds != 0 ? options.rounds : default_rounds);
  out.say(text_of(host));
  if (out.as_json()) fmt::print("{}\n", json_line(host));
  return {};
}

}  // namespace cenote::bench
