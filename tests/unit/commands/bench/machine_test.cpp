#include "commands/bench/machine.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

using namespace cenote;
using namespace cenote::bench;

namespace {

namespace fs = std::filesystem;

/// The files of /proc and /sys that describe a kind of machine, in a directory that goes away.
class described_machine {
 public:
  explicit described_machine(const std::string& cpuinfo) {
    char name[] = "/tmp/cenote-bench-machine-XXXXXX";
    root_ = ::mkdtemp(name);
    write("proc/cpuinfo", cpuinfo);
  }
  described_machine(const described_machine&) = delete;
  described_machine& operator=(const described_machine&) = delete;
  ~described_machine() { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_cache(int index, const std::string& level, const std::string& type, const std::string& size) const {
    const auto place = "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    write(place + "/level", level + "\n");
    write(place + "/type", type + "\n");
    write(place + "/size", size + "\n");
  }
  [[nodiscard]] machine read() const { return read_machine(root_); }

 private:
  fs::path root_;
};

std::string x86(const std::string& vendor, int family, int model, const std::string& flags) {
  return "processor\t: 0\nvendor_id\t: " + vendor + "\ncpu family\t: " + std::to_string(family) +
         "\nmodel\t\t: " + std::to_string(model) + "\nmodel name\t: A Processor\nstepping\t: 2\nflags\t\t: " + flags +
         "\n\nprocessor\t: 1\nmodel\t\t: 999\n";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bench_machine_tests)

BOOST_AUTO_TEST_CASE(a_kind_is_the_generation_of_the_processor_and_its_cores) {
  const machine found = described_machine(x86("GenuineIntel", 6, 207, "sse2 avx2 avx512f")).read();
  BOOST_TEST(found.generation == "Emerald Rapids");
  BOOST_TEST(found.kind == "emerald-rapids-" + std::to_string(found.cores));
  BOOST_TEST(found.processor == "A Processor");
  BOOST_TEST(found.model == 207U);
  BOOST_TEST(found.stepping == 2U);
  BOOST_TEST(found.vector_bits == 512U);
}

BOOST_AUTO_TEST_CASE(zen_3_and_zen_4_share_a_family_and_differ_by_model) {
  BOOST_TEST(described_machine(x86("AuthenticAMD", 25, 1, "sse2 avx2")).read().generation == "Zen 3");
  BOOST_TEST(described_machine(x86("AuthenticAMD", 25, 17, "sse2 avx2 avx512f")).read().generation == "Zen 4");
}

BOOST_AUTO_TEST_CASE(an_unknown_processor_has_its_numbers_as_its_kind) {
  const machine found = described_machine(x86("GenuineIntel", 6, 1, "sse2")).read();
  BOOST_TEST(found.generation == "GenuineIntel family 6 model 1");
  BOOST_TEST(found.vector_bits == 128U);
}

BOOST_AUTO_TEST_CASE(arm_is_known_by_implementer_and_part) {
  const machine found = described_machine(
                            "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n"
                            "CPU architecture: 8\nCPU part\t: 0xd4f\nCPU revision\t: 1\n")
                            .read();
  BOOST_TEST(found.generation == "Neoverse V2");
  BOOST_TEST(found.processor == "Neoverse V2");
  BOOST_TEST(found.vector_bits == 128U);
}

BOOST_AUTO_TEST_CASE(caches_of_instructions_do_not_count_and_the_huge_pages_chosen_do) {
  const described_machine files(x86("AuthenticAMD", 25, 17, "sse2"));
  files.write_cache(0, "1", "Data", "32K");
  files.write_cache(1, "1", "Instruction", "32K");
  files.write_cache(2, "3", "Unified", "32M");
  files.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  const machine found = files.read();
  BOOST_REQUIRE(found.caches.size() == 2U);
  BOOST_TEST(found.caches[0].level == "L1d");
  BOOST_TEST(found.caches[0].bytes == 32 * KiB);
  BOOST_TEST(found.caches[1].level == "L3");
  BOOST_TEST(found.caches[1].bytes == 32 * MiB);
  BOOST_TEST(found.huge_pages == "madvise");
  BOOST_TEST(found.shared_huge_pages.empty());
}

BOOST_AUTO_TEST_CASE(the_line_is_one_object_with_the_machine_in_it) {
  const auto line = nlohmann::json::parse(json_line(described_machine(x86("AuthenticAMD", 25, 17, "avx2")).read()));
  BOOST_TEST(line.size() == 1U);
  BOOST_TEST(line.at("machine").at("generation") == "Zen 4");
  BOOST_TEST(line.at("machine").at("memcpy_gib_s") == 0.0);
}

BOOST_AUTO_TEST_SUITE_END()
